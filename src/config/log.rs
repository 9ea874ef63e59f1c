//! `[log]`: settings of the log on standard error.

use super::{error::SettingError, layers::LayeredSettings};

/// Log settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The lowest level that is written.
    pub level: LogLevel,
    /// The format of a line.
    pub format: LogFormat,
    /// Whether every request is logged.
    pub requests: bool,
}

/// A level: messages of this and all higher severities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// No messages.
    Off,
    /// Errors that need an operator.
    Error,
    /// Conditions that may become errors.
    Warn,
    /// Normal events.
    Info,
    /// Details of normal operation.
    Debug,
    /// Every step.
    Trace,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object in each line, for log collectors.
    Json,
}

const FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];

impl LogFormat {
    pub(super) fn parse(text: &str) -> Option<Self> {
        FORMATS.iter().find(|(word, _)| *word == text).map(|(_, format)| *format)
    }
}

impl LogConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
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
