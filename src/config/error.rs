//! What can be wrong with a configuration, each said in one line.

use std::{fmt, io, path::PathBuf};

use thiserror::Error;

/// Where a setting's value came from.
///
/// Reads as the end of a sentence: `in ./signpost.toml, line 3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The defaults that are built into the program.
    Default,
    /// A configuration file.
    File {
        /// The file as it was named, not resolved.
        path: PathBuf,
        /// The setting's line, counted from 1.
        line: usize,
    },
    /// An environment variable.
    Environment {
        /// The variable's full name.
        variable: String,
    },
}

impl Origin {
    /// The layer's rank: a value from a higher layer replaces one from a lower.
    pub(super) fn layer(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File { .. } => 1,
            Self::Environment { .. } => 2,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "in {}, line {line}", path.display()),
            Self::Environment { variable } => write!(f, "from environment {variable}"),
        }
    }
}

/// A setting that stops the start: which one, what is wrong with it, and where it was set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{setting}: {message} ({origin}){}", Suggestion(.suggestion.as_deref()))]
pub struct SettingError {
    /// The setting's dotted name, such as `http.listen`.
    pub setting: String,
    /// What is wrong, worded to follow the name and a colon.
    pub message: String,
    /// Where the refused value was set.
    pub origin: Origin,
    suggestion: Option<String>,
}

impl SettingError {
    /// For a fault found only when the setting is used, such as a `geo.database` that turns out to
    /// be no database; [`Config::origin`](super::Config::origin) knows the place.
    pub fn new(setting: impl Into<String>, message: impl Into<String>, origin: Origin) -> Self {
        Self { setting: setting.into(), message: message.into(), origin, suggestion: None }
    }

    /// Adds the name that was probably meant.
    pub(super) fn suggesting(mut self, name: Option<String>) -> Self {
        self.suggestion = name;
        self
    }
}

/// The tail of a [`SettingError`]'s line; nothing where there is no suggestion.
struct Suggestion<'a>(Option<&'a str>);

impl fmt::Display for Suggestion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |name| write!(f, "; did you mean {name}?"))
    }
}

/// Why no configuration could be made. Displays as one line.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file is missing, though `--config` names it, or can't be read.
    #[error("{}: cannot be read: {error}", path.display())]
    Unreadable {
        /// The file as it was named.
        path: PathBuf,
        /// What the operating system said.
        error: io::Error,
    },
    /// The file is not TOML.
    #[error("{}, line {line}: {message}", path.display())]
    Malformed {
        /// The file as it was named.
        path: PathBuf,
        /// The line of the fault, counted from 1.
        line: usize,
        /// What the parser expected.
        message: String,
    },
    /// A setting is unknown, or has a bad value.
    #[error(transparent)]
    Setting(#[from] SettingError),
}
