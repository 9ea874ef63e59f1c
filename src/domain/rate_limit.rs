//! The rate limits of an API key. The endpoints declare theirs; here is only how one is told from another.

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
