//! `[geo]`: places of hits.

use std::path::{Path, PathBuf};

use super::{error::SettingError, layers::Settings};

/// Settings for the places of hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geo {
    /// A `MaxMind` DB that is there as a file; whether it is one shows when it is opened.
    pub database: Option<PathBuf>,
}

impl Geo {
    /// `directory` is what a relative path starts from.
    pub(super) fn read(settings: &mut Settings, directory: &Path) -> Result<Self, SettingError> {
        Ok(Self {
            database: settings.optional("geo.database", "a file that is there", |text| {
                let is_file = directory.join(text).is_file();
                is_file.then(|| PathBuf::from(text))
            })?,
        })
    }
}
