//! What else a link may have: title, tags, times, and how it redirects.

use std::collections::HashSet;

use thiserror::Error;

use super::state::LinkTimes;
use super::target::TargetUrl;
use crate::domain::calendar::Timestamp;

/// The longest `cache_seconds`: a day.
pub const MAX_CACHE_SECONDS: u32 = 86_400;

const MAX_TITLE: usize = 200;
const MAX_NOTES: usize = 2_000;
const MAX_TAGS: usize = 20;
const MAX_TAG: usize = 50;

/// Why an option is not valid. Each text is the `detail` of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OptionsError {
    #[error("must be 1 to 200 characters long")]
    Title,
    #[error("must be at most 2000 characters long")]
    Notes,
    #[error("must have at most 20 entries")]
    Tags,
    #[error("must be 1 to 50 characters long, without commas and control characters")]
    Tag,
    #[error("must differ from the others, whatever their case")]
    RepeatedTag,
    #[error("must be 301, 302, 307 or 308")]
    Status,
    #[error("must be an integer from 0 to 86400")]
    CacheSeconds,
}

/// The status of a link's redirects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RedirectStatus {
    MovedPermanently,
    #[default]
    Found,
    TemporaryRedirect,
    PermanentRedirect,
}

impl RedirectStatus {
    pub const ALL: [Self; 4] = [Self::MovedPermanently, Self::Found, Self::TemporaryRedirect, Self::PermanentRedirect];

    pub fn code(self) -> u16 {
        match self {
            Self::MovedPermanently => 301,
            Self::Found => 302,
            Self::TemporaryRedirect => 307,
            Self::PermanentRedirect => 308,
        }
    }

    pub fn from_code(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|status| u64::from(status.code()) == code)
    }
}

/// What a client may set on a link beside its target, data and webhooks. The default is that of every field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    pub title: Option<String>,
    pub tags: Vec<String>,
    pub notes: Option<String>,
    pub archived: bool,
    pub expires_at: Option<Timestamp>,
    pub not_before: Option<Timestamp>,
    /// Where the link leads once it is expired.
    pub fallback: Option<TargetUrl>,
    pub redirect_status: RedirectStatus,
    /// How long browsers may keep the redirect.
    pub cache_seconds: u32,
    /// Whether `/{short_id}+` shows the target.
    pub preview: bool,
    /// Whether hits of bots fire no webhooks.
    pub skip_bots: bool,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            title: None,
            tags: Vec::new(),
            notes: None,
            archived: false,
            expires_at: None,
            not_before: None,
            fallback: None,
            redirect_status: RedirectStatus::default(),
            cache_seconds: 0,
            preview: true,
            skip_bots: false,
        }
    }
}

impl LinkOptions {
    pub fn times(&self) -> LinkTimes {
        LinkTimes { not_before: self.not_before, expires_at: self.expires_at }
    }

    /// # Errors
    /// If the title is empty or too long.
    pub fn check_title(title: &str) -> Result<(), OptionsError> {
        if (1..=MAX_TITLE).contains(&title.chars().count()) { Ok(()) } else { Err(OptionsError::Title) }
    }

    /// # Errors
    /// If the notes are too long.
    pub fn check_notes(notes: &str) -> Result<(), OptionsError> {
        if notes.chars().count() <= MAX_NOTES { Ok(()) } else { Err(OptionsError::Notes) }
    }

    /// All faults of a list of tags, each with the place of its tag; `None` is the list itself.
    pub fn faults_of_tags(tags: &[String]) -> Vec<(Option<usize>, OptionsError)> {
        let mut faults = Vec::new();
        if tags.len() > MAX_TAGS {
            faults.push((None, OptionsError::Tags));
        }
        let mut known = HashSet::new();
        for (place, tag) in tags.iter().enumerate() {
            let is_valid =
                (1..=MAX_TAG).contains(&tag.chars().count()) && !tag.chars().any(|c| c == ',' || c.is_control());
            if !is_valid {
                faults.push((Some(place), OptionsError::Tag));
            } else if !known.insert(folded(tag)) {
                faults.push((Some(place), OptionsError::RepeatedTag));
            }
        }
        faults
    }
}

/// A tag, or another text, without its case. Each character is folded by itself, so that a part of a text is a part of
/// the folded text: a sigma at the end of a word is a sigma.
pub fn folded(tag: &str) -> String {
    let folded = tag.chars().flat_map(char::to_lowercase);
    folded.map(|c| if c == 'ς' { 'σ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(tags: &[&str]) -> Vec<(Option<usize>, OptionsError)> {
        LinkOptions::faults_of_tags(&tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn tags_differ_whatever_their_case() {
        assert_eq!(faults(&["summer", "Mail", "ä ö"]), []);
        assert_eq!(faults(&["Ä", "ä"]), [(Some(1), OptionsError::RepeatedTag)]);
        let wrong = [(Some(0), OptionsError::Tag), (Some(1), OptionsError::Tag), (Some(2), OptionsError::Tag)];
        assert_eq!(faults(&["", "a,b", "a\n"]), wrong);
        assert_eq!(faults(&[&"x".repeat(51)]), [(Some(0), OptionsError::Tag)]);
        let many: Vec<String> = (0..21).map(|n| n.to_string()).collect();
        assert_eq!(LinkOptions::faults_of_tags(&many), [(None, OptionsError::Tags)]);
        assert_eq!(LinkOptions::faults_of_tags(&many[..20]), []);
    }

    #[test]
    fn texts_are_measured_in_characters() {
        assert!(LinkOptions::check_title(&"ä".repeat(200)).is_ok() && LinkOptions::check_title("").is_err());
        assert!(LinkOptions::check_title(&"ä".repeat(201)).is_err());
        assert!(LinkOptions::check_notes(&"ä".repeat(2_000)).is_ok() && LinkOptions::check_notes("").is_ok());
        assert!(LinkOptions::check_notes(&"ä".repeat(2_001)).is_err());
    }

    #[test]
    fn four_statuses_are_redirects_of_links() {
        for status in RedirectStatus::ALL {
            assert_eq!(RedirectStatus::from_code(status.code().into()), Some(status));
        }
        assert_eq!(RedirectStatus::from_code(303), None);
    }
}
