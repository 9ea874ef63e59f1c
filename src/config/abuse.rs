//! `[abuse]`: what links may not lead to.

use std::path::{Path, PathBuf};

use super::{error::SettingError, layers::LayeredSettings};

/// Settings against abuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbuseConfig {
    /// The path of an existing file with a host on each line.
    pub blocked_hosts: Option<PathBuf>,
}

impl AbuseConfig {
    /// Relative paths start from `directory`.
    pub(super) fn read(settings: &mut LayeredSettings, directory: &Path) -> Result<Self, SettingError> {
        Ok(Self {
            blocked_hosts: settings.optional("abuse.blocked_hosts", "an existing file", |text| {
                directory.join(text).is_file().then(|| PathBuf::from(text))
            })?,
        })
    }
}
