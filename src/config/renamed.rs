//! Renamed settings. The old name is read for one release, with a warning.

use std::fmt;

use super::error::Origin;
use super::layers::SettingValue;

/// A setting's old and new name, and the conversion of a value from the old to the new setting.
pub(super) struct Renaming {
    pub old: &'static str,
    pub new: &'static str,
    /// The error is the end of a message that begins with the names.
    pub convert: fn(&SettingValue) -> Result<SettingValue, String>,
}

/// Renamed after 0.1.0; to be removed after the next release.
pub(super) const RENAMED: [Renaming; 2] = [
    Renaming { old: "http.client_limit_cells", new: "limits.table_size", convert: |value| Ok(value.clone()) },
    Renaming { old: "telemetry.otlp_one_in", new: "telemetry.trace_sample_ratio", convert: ratio_of_one_in },
];

impl Renaming {
    pub fn of(old: &str) -> Option<&'static Self> {
        RENAMED.iter().find(|renaming| renaming.old == old)
    }
}

/// Both names of a renamed setting, for messages.
pub(super) fn old_and_new(old: &str, new: &str) -> String {
    format!("{old} (now {new})")
}

fn ratio_of_one_in(value: &SettingValue) -> Result<SettingValue, String> {
    let count = match value {
        SettingValue::Integer(count) => i32::try_from(*count).ok(),
        SettingValue::Untyped(text) => text.parse().ok(),
        _ => None,
    };
    match count {
        Some(count @ 1..=1_000_000) => Ok(SettingValue::Fraction((1.0 / f64::from(count)).to_string())),
        _ => Err("is not between 1 and 1000000".to_owned()),
    }
}

/// A setting that was set under its old name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenamedSetting {
    pub(super) old: &'static str,
    pub(super) new: &'static str,
    pub(super) origin: Origin,
}

impl fmt::Display for RenamedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { old, new, origin } = self;
        write!(f, "{old} is now named {new} ({origin}); the next release does not read the old name")
    }
}
