//! `[redirect]`, `[fallbacks]`, `[pages]` and `[console]`: what visitors get besides redirects.

use std::path::{Path, PathBuf};

use super::{error::SettingError, layers::LayeredSettings};

/// Settings of the answers to visitors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectConfig {
    /// Whether search engines are told not to list redirects, pages and errors.
    pub noindex: bool,
}

impl RedirectConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        Ok(Self { noindex: settings.boolean("redirect.noindex")? })
    }
}

/// Where visitors are sent for whom there is no link. Whether a text is a valid target is checked when it is used: that
/// depends on the base URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FallbacksConfig {
    /// `GET /` of browsers.
    pub root: Option<String>,
    /// `GET /{short_id}` of unknown links.
    pub not_found: Option<String>,
    /// `GET /{short_id}` of expired links that have no fallback of their own.
    pub expired: Option<String>,
}

impl FallbacksConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        let mut url = |name| settings.optional(name, "a URL", |text| Some(text.to_owned()));
        Ok(Self {
            root: url("fallbacks.root")?,
            not_found: url("fallbacks.not_found")?,
            expired: url("fallbacks.expired")?,
        })
    }
}

/// Pages in the place of the service's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagesConfig {
    /// The path of an existing directory. What is in it is checked when it is read.
    pub directory: Option<PathBuf>,
    /// The path of an existing file.
    pub robots: Option<PathBuf>,
}

impl PagesConfig {
    /// Relative paths start from `directory`.
    pub(super) fn read(settings: &mut LayeredSettings, directory: &Path) -> Result<Self, SettingError> {
        Ok(Self {
            directory: settings.optional("pages.directory", "an existing directory", |text| {
                directory.join(text).is_dir().then(|| PathBuf::from(text))
            })?,
            robots: settings.optional("pages.robots", "an existing file", |text| {
                directory.join(text).is_file().then(|| PathBuf::from(text))
            })?,
        })
    }
}

/// Settings of the page for people with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleConfig {
    /// Whether it is served.
    pub enabled: bool,
}

impl ConsoleConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        Ok(Self { enabled: settings.boolean("console.enabled")? })
    }
}
