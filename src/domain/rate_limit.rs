//! The rate limits of an API key. The endpoints declare theirs; here is how one is told from another, and
//! how many requests a minute each tier may send.

use std::num::NonZeroU32;

use super::key::{ApiKey, Tier};

/// A limit on the requests of each key to one endpoint, or to several that are counted together.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    pub id: RateLimitId,
    /// Its name in the `RateLimit-Policy` and `RateLimit` header fields.
    pub name: &'static str,
    /// The setting that has the number, in `[tiers.free]` and in `[tiers.pro]`.
    pub setting: &'static str,
}

/// The number of a rate limit. Nodes of different releases tell each other of windows by it, so a number that was given out
/// is never given to another limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateLimitId(u8);

impl RateLimitId {
    /// As many as there may be.
    pub const COUNT: usize = 64;

    /// # Panics
    /// When `number` is not below [`COUNT`](Self::COUNT). In a constant that is an error of the compiler.
    pub const fn new(number: u8) -> Self {
        assert!((number as usize) < Self::COUNT, "a rate limit has a number below RateLimitId::COUNT");
        Self(number)
    }

    pub const fn number(self) -> u8 {
        self.0
    }

    /// Its place in an array that holds something for every rate limit.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How many requests a minute the keys of each tier may send.
#[derive(Clone, Debug)]
pub struct Rates {
    free: TierRates,
    pro: TierRates,
}

/// By [`RateLimitId::index`]; `None` is no limit.
type TierRates = [Option<NonZeroU32>; RateLimitId::COUNT];

impl Rates {
    /// The rates of `limits`, each as `of` says; all others have no limit.
    pub fn new<'a>(
        limits: impl IntoIterator<Item = &'a RateLimit>,
        of: impl Fn(Tier, &RateLimit) -> Option<NonZeroU32>,
    ) -> Self {
        let mut rates = Self { free: [None; RateLimitId::COUNT], pro: [None; RateLimitId::COUNT] };
        for limit in limits {
            rates.free[limit.id.index()] = of(Tier::Free, limit);
            rates.pro[limit.id.index()] = of(Tier::Pro, limit);
        }
        rates
    }

    /// What `key` may send. The root key has no limit.
    pub fn of(&self, key: &ApiKey, limit: RateLimitId) -> Option<NonZeroU32> {
        if key.is_root { None } else { self.of_tier(key.tier, limit) }
    }

    /// What the keys of a tier may send.
    pub fn of_tier(&self, tier: Tier, limit: RateLimitId) -> Option<NonZeroU32> {
        let rates = match tier {
            Tier::Free => &self.free,
            Tier::Pro => &self.pro,
        };
        rates[limit.index()]
    }
}
