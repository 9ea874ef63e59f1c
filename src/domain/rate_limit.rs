//! The rate limits of an API key. The endpoints declare their limits; this file has the ids of limits, and the
//! requests a minute of each tier.

use std::num::NonZeroU32;

use super::key::{ApiKey, Tier};

/// A limit on the requests of each key to one endpoint, or to several endpoints that are counted together.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    pub id: RateLimitId,
    /// The name in the `RateLimit-Policy` and `RateLimit` header fields.
    pub name: &'static str,
    /// The setting with the limit, in `[tiers.free]` and in `[tiers.pro]`.
    pub setting: &'static str,
}

/// The number of a rate limit. Nodes of different releases use it to exchange windows, so a number is never reused
/// for another limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateLimitId(u8);

impl RateLimitId {
    /// The maximum number of rate limits.
    pub const COUNT: usize = 64;

    /// # Panics
    /// If `number` is not below [`COUNT`](Self::COUNT). In a constant this is a compile error.
    pub const fn new(number: u8) -> Self {
        assert!((number as usize) < Self::COUNT, "a rate limit has a number below RateLimitId::COUNT");
        Self(number)
    }

    pub const fn number(self) -> u8 {
        self.0
    }

    /// The index in an array with an element for every rate limit.
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

/// By [`RateLimitId::index`]; `None` is unlimited.
type TierRates = [Option<NonZeroU32>; RateLimitId::COUNT];

impl Rates {
    /// The rates of `limits`, as `of` returns them. All others are unlimited.
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

    /// The rate of `key`. The root key is unlimited.
    pub fn of(&self, key: &ApiKey, limit: RateLimitId) -> Option<NonZeroU32> {
        if key.is_root { None } else { self.of_tier(key.tier, limit) }
    }

    /// The rate of a tier's keys.
    pub fn of_tier(&self, tier: Tier, limit: RateLimitId) -> Option<NonZeroU32> {
        let rates = match tier {
            Tier::Free => &self.free,
            Tier::Pro => &self.pro,
        };
        rates[limit.index()]
    }
}
