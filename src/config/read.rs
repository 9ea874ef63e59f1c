//! Typed reading of settings, field by field, for the sections.
//!
//! Reading also sets the type of a value from the environment, so that the effective configuration prints `8`, not
//! `"8"`.

use std::{fmt::Display, net::IpAddr, ops::RangeInclusive, str::FromStr, time::Duration};

use ipnet::IpNet;

use super::{
    error::{Origin, SettingError},
    layers::{LayeredSettings, Setting, SettingValue},
    redact,
};

impl LayeredSettings {
    fn setting(&mut self, name: &str) -> Result<&mut Setting, SettingError> {
        // Only a setting that is missing in defaults.toml. Tests load the defaults alone, which would fail.
        self.find_mut(name).ok_or_else(|| SettingError::new(name, "has no default", Origin::Default))
    }

    pub(super) fn boolean(&mut self, name: &str) -> Result<bool, SettingError> {
        let setting = self.setting(name)?;
        if let SettingValue::Untyped(text) = &setting.value {
            let parsed = bool::from_str(text)
                .map_err(|_| setting.refuse(format!("{} is not true or false", redact::refused(text))))?;
            setting.value = SettingValue::Boolean(parsed);
        }
        match setting.value {
            SettingValue::Boolean(value) => Ok(value),
            _ => Err(mismatch(setting, "a boolean")),
        }
    }

    /// A whole number within `range`.
    pub(super) fn integer<T>(&mut self, name: &str, range: RangeInclusive<T>) -> Result<T, SettingError>
    where
        T: TryFrom<i64> + PartialOrd + Display,
    {
        let setting = self.setting(name)?;
        if let SettingValue::Untyped(text) = &setting.value {
            let parsed = i64::from_str(text)
                .map_err(|_| setting.refuse(format!("{} is not a whole number", redact::refused(text))))?;
            setting.value = SettingValue::Integer(parsed);
        }
        let SettingValue::Integer(value) = setting.value else {
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
            SettingValue::Untyped(text) | SettingValue::Fraction(text) => text.clone(),
            SettingValue::Integer(number) => number.to_string(),
            _ => return Err(mismatch(setting, "a number")),
        };
        let Some(ratio) = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio)) else {
            return Err(setting.refuse(format!("{} is not a number from 0 to 1", redact::refused(&text))));
        };
        // In the form of TOML, independent of the source.
        setting.value = SettingValue::Fraction(format!("{ratio:?}"));
        Ok(ratio)
    }

    /// A count, or the word `unlimited`, which is `None`.
    pub(super) fn quota(&mut self, name: &str) -> Result<Option<u64>, SettingError> {
        let setting = self.setting(name)?;
        if let SettingValue::Untyped(text) = &setting.value {
            setting.value =
                i64::from_str(text).map_or_else(|_| SettingValue::Text(text.clone()), SettingValue::Integer);
        }
        let refused = match &setting.value {
            SettingValue::Text(word) if word == "unlimited" => return Ok(None),
            SettingValue::Integer(count) => match u64::try_from(*count) {
                Ok(count) => return Ok(Some(count)),
                Err(_) => count.to_string(),
            },
            SettingValue::Text(text) => redact::refused(text),
            _ => return Err(mismatch(setting, "a whole number or \"unlimited\"")),
        };
        Err(setting.refuse(format!("{refused} is neither a count from 0 up nor \"unlimited\"")))
    }

    /// A string that `parse` converts; `expected` ends the message `"…" is not …`.
    pub(super) fn parsed<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, SettingError> {
        let setting = self.setting(name)?;
        if let SettingValue::Untyped(text) = &setting.value {
            setting.value = SettingValue::Text(text.clone());
        }
        match &setting.value {
            SettingValue::Text(text) => {
                parse(text).ok_or_else(|| setting.refuse(format!("{} is not {expected}", redact::refused(text))))
            }
            _ => Err(mismatch(setting, "a string")),
        }
    }

    /// As [`Self::parsed`]; an empty string means that the setting is unset.
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

    /// A duration within `range`.
    pub(super) fn duration(&mut self, name: &str, range: RangeInclusive<Duration>) -> Result<Duration, SettingError> {
        let expected = duration_expected(&range);
        self.parsed(name, &expected, |text| parse_duration(text, &range))
    }

    /// A duration within `range`, or the word `never`, which is `None`.
    pub(super) fn duration_or_never(
        &mut self,
        name: &str,
        range: RangeInclusive<Duration>,
    ) -> Result<Option<Duration>, SettingError> {
        let expected = format!("\"never\" or {}", duration_expected(&range));
        self.parsed(
            name,
            &expected,
            |text| {
                if text == "never" { Some(None) } else { parse_duration(text, &range).map(Some) }
            },
        )
    }

    /// A list of durations, each within `range`.
    pub(super) fn durations(
        &mut self,
        name: &str,
        range: RangeInclusive<Duration>,
    ) -> Result<Vec<Duration>, SettingError> {
        let expected = duration_expected(&range);
        self.list(name, &expected, |text| parse_duration(text, &range))
    }

    /// A list of networks. A single address is the network of that address.
    pub(super) fn networks(&mut self, name: &str) -> Result<Vec<IpNet>, SettingError> {
        self.list(name, "an address or a network in CIDR form", |text| {
            let network = IpNet::from_str(text).map(|network| network.trunc());
            network.or_else(|_| IpAddr::from_str(text).map(IpNet::from)).ok()
        })
    }

    /// A list whose items `parse` accepts. In the environment, items are separated by commas.
    pub(super) fn list<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, SettingError> {
        let setting = self.setting(name)?;
        if let SettingValue::Untyped(text) = &setting.value {
            setting.value = SettingValue::List(split_list(text));
        }
        let SettingValue::List(items) = &setting.value else {
            return Err(mismatch(setting, "a list of strings"));
        };
        items
            .iter()
            .map(|item| {
                parse(item).ok_or_else(|| setting.refuse(format!("{} is not {expected}", redact::refused(item))))
            })
            .collect()
    }

    /// The error of settings that contradict each other. It names the setting of the highest layer: the others may be
    /// defaults.
    pub(super) fn conflict(&self, names: &[&str], message: &str) -> SettingError {
        let layer_of = |name: &&&str| self.find(name).map_or(0, |setting| setting.origin.layer());
        let blamed = names.iter().rev().max_by_key(layer_of).copied().unwrap_or_default();
        match self.find(blamed) {
            Some(setting) => setting.refuse(message),
            None => SettingError::new(blamed, message, Origin::Default),
        }
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
