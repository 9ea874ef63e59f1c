//! The webhooks of a link. A URL keeps its place for the life of the link, because deliveries refer to it by its place.

use thiserror::Error;

/// The maximum number of webhooks of a link at once.
pub const MAX_WEBHOOKS: usize = 10;
/// The maximum number of webhooks that a link may have in its life.
pub const MAX_WEBHOOKS_EVER: usize = 200;

/// A link has had too many webhooks. The text is the `detail` of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a link can have at most 200 different URLs in its life")]
pub struct TooManyWebhooks;

/// All URLs that a link has ever had, and which of them its hits fire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkWebhooks {
    /// By place. Checked URLs, unchanged.
    urls: Vec<String>,
    /// The places of the URLs that hits fire, in the order of the request.
    active: Vec<u8>,
}

/// The webhooks of a new link, in the order of the request.
impl From<Vec<String>> for LinkWebhooks {
    fn from(urls: Vec<String>) -> Self {
        let active = (0..=u8::MAX).take(urls.len()).collect();
        Self { urls, active }
    }
}

impl LinkWebhooks {
    /// Webhooks as they are stored; `None` if a place has no URL.
    pub fn from_stored(urls: Vec<String>, active: Vec<u8>) -> Option<Self> {
        active.iter().all(|place| usize::from(*place) < urls.len()).then_some(Self { urls, active })
    }

    /// The webhooks after a change to these URLs. A URL that the link has had before has its place again.
    ///
    /// # Errors
    /// If the link has too many different URLs in its life.
    pub fn changed_to(&self, urls: Vec<String>) -> Result<Self, TooManyWebhooks> {
        let mut changed = Self { urls: self.urls.clone(), active: Vec::with_capacity(urls.len()) };
        for url in urls {
            let place = changed.urls.iter().position(|known| *known == url).unwrap_or(changed.urls.len());
            if place == changed.urls.len() {
                changed.urls.push(url);
            }
            changed.active.push(u8::try_from(place).ok().filter(|_| place < MAX_WEBHOOKS_EVER).ok_or(TooManyWebhooks)?);
        }
        Ok(changed)
    }

    /// All URLs that the link has had, by place.
    pub fn all(&self) -> &[String] {
        &self.urls
    }

    /// The URL at a place, whether hits still fire it or not.
    pub fn at(&self, place: u8) -> Option<&str> {
        self.urls.get(usize::from(place)).map(String::as_str)
    }

    /// The places of the URLs that hits fire.
    pub fn places(&self) -> &[u8] {
        &self.active
    }

    /// The URLs that hits fire, in the order of the request.
    pub fn active(&self) -> impl Iterator<Item = &str> {
        self.active.iter().filter_map(|place| self.at(*place))
    }

    /// Whether hits fire none.
    pub fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Whether hits fire the URLs of the first places, in their order, and the link has had no others.
    pub fn is_unchanged(&self) -> bool {
        self.active.iter().copied().eq((0..=u8::MAX).take(self.urls.len()))
    }

    pub fn fired(&self) -> FiredWebhooks {
        FiredWebhooks::from(&self.active[..])
    }
}

/// Which webhooks a hit fires.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FiredWebhooks {
    count: u8,
    /// `None`: the first places. So nearly all links need no memory for it.
    places: Option<Box<[u8]>>,
}

impl From<&[u8]> for FiredWebhooks {
    fn from(places: &[u8]) -> Self {
        let mut sorted = places.to_vec();
        sorted.sort_unstable();
        let are_first = sorted.iter().copied().eq((0..=u8::MAX).take(sorted.len()));
        let count = u8::try_from(sorted.len()).unwrap_or(u8::MAX);
        Self { count, places: (!are_first).then(|| sorted.into()) }
    }
}

impl FiredWebhooks {
    /// The webhooks at the first `count` places.
    pub fn first(count: u8) -> Self {
        Self { count, places: None }
    }

    pub fn count(&self) -> u8 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The places, unless they are the first ones.
    pub fn places(&self) -> Option<&[u8]> {
        self.places.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| format!("https://{name}.example/")).collect()
    }

    #[test]
    fn a_url_keeps_its_place() {
        let webhooks = LinkWebhooks::from(urls(&["a", "b"]));
        assert!(webhooks.is_unchanged() && !webhooks.changed_to(urls(&["b", "a"])).unwrap().is_unchanged());
        let changed = webhooks.changed_to(urls(&["c", "b"])).unwrap();
        assert_eq!((changed.all(), changed.places()), (&urls(&["a", "b", "c"])[..], &[2, 1][..]));
        assert_eq!(changed.active().collect::<Vec<_>>(), ["https://c.example/", "https://b.example/"]);
        assert_eq!(changed.fired().places(), Some(&[1, 2][..]));
        let back = changed.changed_to(urls(&["b", "a"])).unwrap();
        assert_eq!((back.places(), back.all().len()), (&[1, 0][..], 3));
        assert!(back.fired().places().is_none() && !back.is_unchanged());
        assert!(back.changed_to(Vec::new()).unwrap().is_empty());
    }

    #[test]
    fn a_link_has_at_most_200_webhooks_in_its_life() {
        let mut webhooks = LinkWebhooks::default();
        for number in 0..200 {
            webhooks = webhooks.changed_to(urls(&[&number.to_string()])).unwrap();
        }
        assert_eq!(webhooks.changed_to(urls(&["more"])), Err(TooManyWebhooks));
        assert!(webhooks.changed_to(urls(&["7"])).is_ok());
    }

    #[test]
    fn stored_places_have_urls() {
        assert_eq!(LinkWebhooks::from_stored(urls(&["a"]), vec![0]), Some(urls(&["a"]).into()));
        assert_eq!(LinkWebhooks::from_stored(urls(&["a"]), vec![1]), None);
    }
}
