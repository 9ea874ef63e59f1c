//! Rate limits of keys, for tests to which any would do.

use signpost::domain::rate_limit::RateLimitId;

pub const SHORTEN: RateLimitId = RateLimitId::new(0);
pub const LINK: RateLimitId = RateLimitId::new(1);
pub const USAGE: RateLimitId = RateLimitId::new(4);
pub const SOME: [RateLimitId; 7] =
    [SHORTEN, LINK, RateLimitId::new(2), RateLimitId::new(3), USAGE, RateLimitId::new(5), RateLimitId::new(6)];
