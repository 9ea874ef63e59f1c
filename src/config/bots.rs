//! `[bots]`: how hits of bots are told from those of people.

use std::path::{Path, PathBuf};

use super::{error::SettingError, layers::LayeredSettings};

/// Settings for bots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BotsConfig {
    /// The path of an existing file with patterns and kinds, in place of the built-in list.
    pub list: Option<PathBuf>,
    /// The path of an existing file with a network on each line.
    pub networks: Option<PathBuf>,
}

impl BotsConfig {
    /// Relative paths start from `directory`.
    pub(super) fn read(settings: &mut LayeredSettings, directory: &Path) -> Result<Self, SettingError> {
        let mut file = |setting| {
            settings.optional(setting, "an existing file", |text| {
                directory.join(text).is_file().then(|| PathBuf::from(text))
            })
        };
        Ok(Self { list: file("bots.list")?, networks: file("bots.networks")? })
    }
}
