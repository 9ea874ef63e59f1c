//! `[geo]`: settings of the database of places.

use std::path::{Path, PathBuf};

use super::{error::SettingError, layers::LayeredSettings};

/// Settings for the places of hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeoConfig {
    /// The path of an existing file. Whether it is a `MaxMind` DB is checked when it is opened.
    pub database: Option<PathBuf>,
}

impl GeoConfig {
    /// Relative paths start from `directory`.
    pub(super) fn read(settings: &mut LayeredSettings, directory: &Path) -> Result<Self, SettingError> {
        Ok(Self {
            database: settings.optional("geo.database", "an existing file", |text| {
                let is_file = directory.join(text).is_file();
                is_file.then(|| PathBuf::from(text))
            })?,
        })
    }
}
