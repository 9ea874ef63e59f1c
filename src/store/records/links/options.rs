//! The options of a link.

use serde::{Deserialize, Serialize};

use super::super::{RecordFault, Time, require};
use crate::domain::link::{LinkOptions, MAX_CACHE_SECONDS, RedirectStatus, TargetUrl};

written_enum! {
    #[derive(Default)]
    StatusV1 for RedirectStatus { MovedPermanently, #[default] Found, TemporaryRedirect, PermanentRedirect }
}

/// Options in rows, in exports, and in a column of JSON. In JSON, an option that is missing has its default.
#[derive(Serialize, Deserialize)]
pub struct OptionsV1 {
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    notes: Option<String>,
    #[serde(default)]
    archived: bool,
    #[serde(default)]
    expires_at: Option<Time>,
    #[serde(default)]
    not_before: Option<Time>,
    #[serde(default)]
    fallback: Option<String>,
    #[serde(default)]
    redirect_status: StatusV1,
    #[serde(default)]
    cache_seconds: u32,
    #[serde(default = "yes")]
    preview: bool,
    #[serde(default)]
    skip_bots: bool,
}

fn yes() -> bool {
    true
}

impl OptionsV1 {
    /// `None` for the defaults.
    pub fn of(options: &LinkOptions) -> Option<Self> {
        if *options == LinkOptions::default() {
            return None;
        }
        let LinkOptions {
            title,
            tags,
            notes,
            archived,
            expires_at,
            not_before,
            fallback,
            redirect_status,
            cache_seconds,
            preview,
            skip_bots,
        } = options;
        Some(Self {
            title: title.clone(),
            tags: tags.clone(),
            notes: notes.clone(),
            archived: *archived,
            expires_at: expires_at.map(Time),
            not_before: not_before.map(Time),
            fallback: fallback.as_ref().map(|url| url.as_str().to_owned()),
            redirect_status: (*redirect_status).into(),
            cache_seconds: *cache_seconds,
            preview: *preview,
            skip_bots: *skip_bots,
        })
    }

    /// Refuses options from a file that this service could not have written.
    pub fn check(&self) -> Result<(), RecordFault> {
        if let Some(title) = &self.title {
            LinkOptions::check_title(title).map_err(|error| format!("options/title: {error}"))?;
        }
        if let Some(notes) = &self.notes {
            LinkOptions::check_notes(notes).map_err(|error| format!("options/notes: {error}"))?;
        }
        if let Some((_, error)) = LinkOptions::faults_of_tags(&self.tags).first() {
            return Err(format!("options/tags: {error}"));
        }
        if let Some(fallback) = &self.fallback {
            TargetUrl::parse_stored(fallback).map_err(|error| format!("options/fallback: {error}"))?;
        }
        require(self.cache_seconds <= MAX_CACHE_SECONDS, "options/cache_seconds: must be at most 86400")
    }
}

/// For options from this service's own store.
impl From<OptionsV1> for LinkOptions {
    fn from(record: OptionsV1) -> Self {
        let OptionsV1 {
            title,
            tags,
            notes,
            archived,
            expires_at,
            not_before,
            fallback,
            redirect_status,
            cache_seconds,
            preview,
            skip_bots,
        } = record;
        Self {
            title,
            tags,
            notes,
            archived,
            expires_at: expires_at.map(|time| time.0),
            not_before: not_before.map(|time| time.0),
            fallback: fallback.map(TargetUrl::from_store),
            redirect_status: redirect_status.into(),
            cache_seconds,
            preview,
            skip_bots,
        }
    }
}
