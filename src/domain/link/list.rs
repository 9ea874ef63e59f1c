//! Lists of links: from which index, in which order, and which links of it are shown.

use super::options::folded;
use super::{Link, LinkName, LinkState, ShortId};
use crate::domain::calendar::Timestamp;

/// The order of a list by time of creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListOrder {
    #[default]
    Newest,
    Oldest,
}

impl ListOrder {
    pub const ALL: [Self; 2] = [Self::Newest, Self::Oldest];

    pub fn name(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Oldest => "oldest",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.name() == text)
    }
}

/// The index that a list is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListIndex {
    All,
    /// Links with this tag, which is folded.
    Tag(String),
    /// Links with a slug that begins with this text, in the order of their slugs.
    SlugPrefix(String),
    /// Links with exactly this target.
    Target(String),
}

impl ListIndex {
    /// The index of links with a tag, whatever its case.
    pub fn of_tag(tag: &str) -> Self {
        Self::Tag(folded(tag))
    }

    pub fn has(&self, link: &Link) -> bool {
        match self {
            Self::All => true,
            Self::Tag(tag) => link.options.tags.iter().any(|own| folded(own) == *tag),
            Self::SlugPrefix(prefix) => link.slug.is_some_and(|slug| slug.as_str().starts_with(prefix)),
            Self::Target(target) => link.target.as_str() == target,
        }
    }

    /// The place of a link in a list of this index.
    pub fn place_of(&self, link: &Link) -> ListPlace {
        match self {
            Self::SlugPrefix(_) => ListPlace::Name(link.name()),
            Self::All | Self::Tag(_) | Self::Target(_) => ListPlace::Time(link.created_at, link.id),
        }
    }
}

/// A place in a list. Links of the same time are in the order of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListPlace {
    Time(Timestamp, ShortId),
    Name(LinkName),
}

/// Which links of an index are shown. `None` and no words: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkFilter {
    pub archived: Option<bool>,
    pub state: Option<LinkState>,
    pub has_webhooks: Option<bool>,
    pub created_from: Option<Timestamp>,
    /// Exclusive.
    pub created_until: Option<Timestamp>,
    /// Folded: see [`words_of`]. Each must be in the link's name, title, target or tags.
    pub words: Vec<String>,
}

/// The words of a text to be looked for, whatever their case.
pub fn words_of(text: &str) -> Vec<String> {
    text.split_whitespace().map(folded).collect()
}

impl LinkFilter {
    /// Whether a link that is in this state is shown.
    pub fn admits(&self, link: &Link, state: LinkState) -> bool {
        self.archived.is_none_or(|archived| archived == link.options.archived)
            && self.state.is_none_or(|wanted| wanted == state)
            && self.has_webhooks.is_none_or(|has| has != link.webhooks.is_empty())
            && self.created_from.is_none_or(|from| from <= link.created_at)
            && self.created_until.is_none_or(|until| link.created_at < until)
            && self.has_words(link)
    }

    fn has_words(&self, link: &Link) -> bool {
        if self.words.is_empty() {
            return true;
        }
        let name = link.name();
        let options = &link.options;
        let texts = [name.as_str(), link.target.as_str()].into_iter();
        let texts = texts.chain(options.title.as_deref()).chain(options.tags.iter().map(String::as_str));
        let texts: Vec<String> = texts.map(folded).collect();
        self.words.iter().all(|word| texts.iter().any(|text| text.contains(word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::key::KeyId;
    use crate::domain::link::{BaseUrl, LinkOptions, NewLink, TargetUrl};

    fn link(options: LinkOptions) -> Link {
        let base = BaseUrl::new(url::Url::parse("https://sign.example").unwrap());
        let target = TargetUrl::parse("https://example.com/Spring?a=b", &base).unwrap();
        let slug = LinkName::parse_slug("Summer_2026").ok();
        let new = NewLink { slug, options, ..NewLink::to(target) };
        new.made(ShortId::parse("aB3xYz9").unwrap(), KeyId(uuid::Uuid::nil()), Timestamp(1_000))
    }

    #[test]
    fn words_are_looked_for_in_name_title_target_and_tags_whatever_their_case() {
        let tags = vec!["ÄPFEL".to_owned(), "Mail".to_owned()];
        let link = link(LinkOptions { title: Some("Big Sale".into()), tags, ..LinkOptions::default() });
        for text in ["", "sale", "BIG sale", "summer_", "example.com/spring", "äpfel", "mAi", "big mail 2026"] {
            let filter = LinkFilter { words: words_of(text), ..LinkFilter::default() };
            assert!(filter.admits(&link, LinkState::Active), "{text}");
        }
        for text in ["winter", "big winter", "aB3xYz9", "bigsale"] {
            let filter = LinkFilter { words: words_of(text), ..LinkFilter::default() };
            assert!(!filter.admits(&link, LinkState::Active), "{text}");
        }
    }

    #[test]
    fn words_of_greek_are_found_whatever_the_case_of_their_sigmas() {
        let link = link(LinkOptions {
            title: Some("ΟΔΥΣΣΕΥΣ και Πηνελόπη".into()), ..LinkOptions::default()
        });
        for text in ["οδυσσευς", "Οδυσσευς", "οδυς", "ΔΥΣ", "πηνελόπη"] {
            let filter = LinkFilter { words: words_of(text), ..LinkFilter::default() };
            assert!(filter.admits(&link, LinkState::Active), "{text}");
        }
        assert_eq!(ListIndex::of_tag("ΟΔΟΣ"), ListIndex::of_tag("οδος"));
    }

    #[test]
    fn each_filter_leaves_out_what_it_does_not_mean() {
        let archived = link(LinkOptions { archived: true, ..LinkOptions::default() });
        let none = LinkFilter::default();
        let admits = |filter: LinkFilter| filter.admits(&archived, LinkState::Expired);
        assert!(admits(none.clone()));
        assert!(admits(LinkFilter { archived: Some(true), ..none.clone() }));
        assert!(!admits(LinkFilter { archived: Some(false), ..none.clone() }));
        assert!(admits(LinkFilter { state: Some(LinkState::Expired), ..none.clone() }));
        assert!(!admits(LinkFilter { state: Some(LinkState::Active), ..none.clone() }));
        assert!(admits(LinkFilter { has_webhooks: Some(false), ..none.clone() }));
        assert!(!admits(LinkFilter { has_webhooks: Some(true), ..none.clone() }));
        assert!(admits(LinkFilter { created_from: Some(Timestamp(1_000)), ..none.clone() }));
        assert!(!admits(LinkFilter { created_from: Some(Timestamp(1_001)), ..none.clone() }));
        assert!(admits(LinkFilter { created_until: Some(Timestamp(1_001)), ..none.clone() }));
        assert!(!admits(LinkFilter { created_until: Some(Timestamp(1_000)), ..none }));
    }

    #[test]
    fn an_index_has_the_links_that_it_is_of() {
        let link = link(LinkOptions { tags: vec!["Äb".into()], ..LinkOptions::default() });
        for index in [
            ListIndex::All,
            ListIndex::of_tag("äB"),
            ListIndex::SlugPrefix("S".into()),
            ListIndex::SlugPrefix("Summer_2026".into()),
            ListIndex::Target("https://example.com/Spring?a=b".into()),
        ] {
            assert!(index.has(&link), "{index:?}");
        }
        for index in [
            ListIndex::of_tag("ä"),
            ListIndex::SlugPrefix("s".into()),
            ListIndex::SlugPrefix("aB3".into()),
            ListIndex::Target("https://example.com/spring?a=b".into()),
        ] {
            assert!(!index.has(&link), "{index:?}");
        }
    }
}
