//! Typed reading of settings: what a section calls, field by field.
//!
//! Reading also settles the type of a value from the environment, so that the effective
//! configuration prints `8`, not `"8"`.

use std::{fmt::Display, net::IpAddr, ops::RangeInclusive, str::FromStr, time::Duration};

use ipnet::IpNet;

use super::{
    error::{Origin, SettingError},
    layers::{Setting, Settings, Value},
    redact,
};

impl Settings {
    fn setting(&mut self, name: &str) -> Result<&mut Setting, SettingError> {
        // Only a setting that was forgotten in defaults.toml can be absent; loading the defaults
        // alone, which a test does, would meet it.
        self.find_mut(name).ok_or_else(|| SettingError::new(name, "has no default", Origin::Default))
    }

    pub(super) fn boolean(&mut self, name: &str) -> Result<bool, SettingError> {
        let setting = self.setting(name)?;
        if let Value::Untyped(text) = &setting.value {
            let parsed = bool::from_str(text)
                .map_err(|_| setting.refuse(format!("{} is not true or false", redact::refused(text))))?;
            setting.value = Value::Boolean(parsed);
        }
        match setting.value {
            Value::Boolean(value) => Ok(value),
            _ => Err(mismatch(setting, "a boolean")),
        }
    }

    /// A whole number within `range`.
    pub(super) fn integer<T>(&mut self, name: &str, range: RangeInclusive<T>) -> Result<T, SettingError>
    where
        T: TryFrom<i64> + PartialOrd + Display,
    {
        let setting = self.setting(name)?;
        if let Value::Untyped(text) = &setting.value {
            let parsed = i64::from_str(text)
                .map_err(|_| setting.refuse(format!("{} is not a whole number", redact::refused(text))))?;
            setting.value = Value::Integer(parsed);
        }
        let Value::Integer(value) = setting.value else {
            return Err(mismatch(setting, "a whole number"));
        };
        T::try_from(value).ok().filter(|value| range.contains(value)).ok_or_else(|| {
            let (least, most) = range.into_inner();
            setting.refuse(format!("{value} is not between {least} and {most}"))
        })
    }

    /// A number from 0 to 1.
    pub(super) fn ratio(&mut self, name: &str) -> Result<f64, SettingError> {
        let setting = self.setting(name)?;
        let text = match &setting.value {
            Value::Untyped(text) | Value::Fraction(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            _ => return Err(mismatch(setting, "a number")),
        };
        let Some(ratio) = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio)) else {
            return Err(setting.refuse(format!("{} is not a number from 0 to 1", redact::refused(&text))));
        };
        // As TOML writes it, whatever it was read from.
        setting.value = Value::Fraction(format!("{ratio:?}"));
        Ok(ratio)
    }

    /// A count, or the word `unlimited`, which is `None`.
    pub(super) fn quota(&mut self, name: &str) -> Result<Option<u64>, SettingError> {
        let setting = self.setting(name)?;
        if let Value::Untyped(text) = &setting.value {
            setting.value = i64::from_str(text).map_or_else(|_| Value::Text(text.clone()), Value::Integer);
        }
        let refused = match &setting.value {
            Value::Text(word) if word == "unlimited" => return Ok(None),
            Value::Integer(count) => match u64::try_from(*count) {
                Ok(count) => return Ok(Some(count)),
                Err(_) => count.to_string(),
            },
            Value::Text(text) => redact::refused(text),
            _ => return Err(mismatch(setting, "a whole number or \"unlimited\"")),
        };
        Err(setting.refuse(format!("{refused} is neither a count from 0 up nor \"unlimited\"")))
    }

    /// A string that `parse` turns into what it stands for; `expected` ends the message
    /// `"…" is not …`.
    pub(super) fn parsed<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, SettingError> {
        let setting = self.setting(name)?;
        if let Value::Untyped(text) = &setting.value {
            setting.value = Value::Text(text.clone());
        }
        match &setting.value {
            Value::Text(text) => {
                parse(text).ok_or_else(|| setting.refuse(format!("{} is not {expected}", redact::refused(text))))
            }
            _ => Err(mismatch(setting, "a string")),
        }
    }

    /// As [`Self::parsed`], but an empty string means that the setting is not used.
    pub(super) fn optional<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingError> {
        self.parsed(name, expected, |text| if text.is_empty() { Some(None) } else { parse(text).map(Some) })
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Result<T, SettingError> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let expected = format!("one of {}", words.join(", "));
        self.parsed(name, &expected, |text| {
            let chosen = choices.iter().find(|(word, _)| *word == text);
            chosen.map(|(_, value)| *value)
        })
    }

    /// A length of time within `range`.
    pub(super) fn duration(&mut self, name: &str, range: RangeInclusive<Duration>) -> Result<Duration, SettingError> {
        let expected = duration_expected(&range);
        self.parsed(name, &expected, |text| parse_duration(text, &range))
    }

    /// A list of lengths of time, each within `range`.
    pub(super) fn durations(
        &mut self,
        name: &str,
        range: RangeInclusive<Duration>,
    ) -> Result<Vec<Duration>, SettingError> {
        let expected = duration_expected(&range);
        self.list(name, &expected, |text| parse_duration(text, &range))
    }

    /// A list of networks; a lone address is the network of that address.
    pub(super) fn networks(&mut self, name: &str) -> Result<Vec<IpNet>, SettingError> {
        self.list(name, "an address or a network in CIDR form", |text| {
            let network = IpNet::from_str(text).map(|network| network.trunc());
            network.or_else(|_| IpAddr::from_str(text).map(IpNet::from)).ok()
        })
    }

    /// A list whose every item `parse` accepts. In the environment items stand between commas.
    pub(super) fn list<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, SettingError> {
        let setting = self.setting(name)?;
        if let Value::Untyped(text) = &setting.value {
            setting.value = Value::List(split_list(text));
        }
        let Value::List(items) = &setting.value else {
            return Err(mismatch(setting, "a list of strings"));
        };
        items
            .iter()
            .map(|item| {
                parse(item).ok_or_else(|| setting.refuse(format!("{} is not {expected}", redact::refused(item))))
            })
            .collect()
    }

    /// Refuses several settings that do not go together, naming the one that was set last: the
    /// others may be defaults that nobody wrote.
    pub(super) fn conflict(&self, names: &[&str], message: &str) -> SettingError {
        let origin_of = |name: &str| self.find(name).map_or(Origin::Default, |setting| setting.origin.clone());
        let blamed = names.iter().rev().max_by_key(|name| origin_of(name).layer()).copied().unwrap_or_default();
        SettingError::new(blamed, message, origin_of(blamed))
    }
}

fn mismatch(setting: &Setting, expected: &str) -> SettingError {
    let found = setting.value.type_name();
    setting.refuse(format!("expected {expected}, found {found}"))
}

fn parse_duration(text: &str, range: &RangeInclusive<Duration>) -> Option<Duration> {
    humantime::parse_duration(text).ok().filter(|duration| range.contains(duration))
}

fn duration_expected(range: &RangeInclusive<Duration>) -> String {
    let (least, most) = (range.start(), range.end());
    format!("a duration from \"{}\" to \"{}\"", humantime::format_duration(*least), humantime::format_duration(*most))
}

fn split_list(text: &str) -> Vec<String> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    text.split(',').map(|item| item.trim().to_owned()).collect()
}
