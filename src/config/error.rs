//! The errors of a configuration, each one line long.

use std::{fmt, io, path::PathBuf};

use thiserror::Error;

/// Where a setting's value was set. Displayed as the end of a sentence: `in ./signpost.toml, line 3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The built-in defaults.
    Default,
    /// A configuration file.
    File {
        /// The path as it was given, not resolved.
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
    /// The rank of the layer. A value of a higher layer overrides one of a lower layer.
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

/// An invalid setting: its name, the error, and where it was set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{setting}: {message} ({origin}){}", Suggestion(.suggestion.as_deref()))]
pub struct SettingError {
    /// The dotted name, such as `http.listen`. Of a setting under its old name: both names.
    pub setting: String,
    /// What is wrong, worded to follow the name and a colon.
    pub message: String,
    /// Where the refused value was set.
    pub origin: Origin,
    suggestion: Option<String>,
}

impl SettingError {
    /// For an error that is found only when the setting is used, such as a `geo.database` that is not a database.
    /// [`Config::refuse`](super::Config::refuse) adds name and origin.
    pub fn new(setting: impl Into<String>, message: impl Into<String>, origin: Origin) -> Self {
        Self { setting: setting.into(), message: message.into(), origin, suggestion: None }
    }

    /// Adds the name that was probably meant.
    pub(super) fn suggesting(mut self, name: Option<String>) -> Self {
        self.suggestion = name;
        self
    }
}

/// The end of a [`SettingError`]'s line; empty without a suggestion.
struct Suggestion<'a>(Option<&'a str>);

impl fmt::Display for Suggestion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |name| write!(f, "; did you mean {name}?"))
    }
}

/// Why no configuration could be loaded. Displayed as one line.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file that `--config` names is missing, or a file can't be read.
    #[error("{}: can't be read: {error}", path.display())]
    Unreadable {
        /// The path as it was given.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file is not valid TOML.
    #[error("{}, line {line}: {message}", path.display())]
    Malformed {
        /// The path as it was given.
        path: PathBuf,
        /// The line of the error, counted from 1.
        line: usize,
        /// The message of the parser.
        message: String,
    },
    /// A setting is unknown or has an invalid value.
    #[error(transparent)]
    Setting(#[from] SettingError),
}
