//! `[log]`: what is written to standard error.

use super::{error::SettingError, layers::Settings};

/// Log settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Least severe messages written.
    pub level: LogLevel,
    /// Form of a line.
    pub format: LogFormat,
    /// Whether every request gets a line.
    pub requests: bool,
}

/// A severity, and all above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing at all.
    Off,
    /// Faults that somebody has to look at.
    Error,
    /// What may become one.
    Warn,
    /// What the service does.
    Info,
    /// How it does it.
    Debug,
    /// Every step.
    Trace,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line, for collectors.
    Json,
}

const FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];

impl LogFormat {
    pub(super) fn parse(text: &str) -> Option<Self> {
        FORMATS.iter().find(|(word, _)| *word == text).map(|(_, format)| *format)
    }
}

impl Log {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, SettingError> {
        Ok(Self {
            level: settings.choice(
                "log.level",
                &[
                    ("off", LogLevel::Off),
                    ("error", LogLevel::Error),
                    ("warn", LogLevel::Warn),
                    ("info", LogLevel::Info),
                    ("debug", LogLevel::Debug),
                    ("trace", LogLevel::Trace),
                ],
            )?,
            format: settings.choice("log.format", &FORMATS)?,
            requests: settings.boolean("log.requests")?,
        })
    }
}
