//! The endpoints whose requests are counted per API key.

/// An endpoint, or a group of them, with a rate limit of its own for every key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Endpoint {
    /// `POST /shorten`
    Shorten = 0,
    /// `GET /links/{short_id}`
    Link = 1,
    /// `GET /links/{short_id}/analytics`
    Analytics = 2,
    /// `GET /links/{short_id}/analytics/summary`
    Summary = 3,
    /// `GET /usage`
    Usage = 4,
    /// `GET /{short_id}/webhooks/status`
    WebhookStatus = 5,
    /// The four endpoints under `/api-keys`, counted together.
    ApiKeys = 6,
}

impl Endpoint {
    /// Every endpoint, each at its own [`index`](Self::index).
    pub const ALL: [Self; 7] =
        [Self::Shorten, Self::Link, Self::Analytics, Self::Summary, Self::Usage, Self::WebhookStatus, Self::ApiKeys];

    /// Its name in the `RateLimit-Policy` and `RateLimit` header fields.
    pub fn policy_name(self) -> &'static str {
        match self {
            Self::Shorten => "shorten",
            Self::Link => "link",
            Self::Analytics => "analytics",
            Self::Summary => "summary",
            Self::Usage => "usage",
            Self::WebhookStatus => "webhook_status",
            Self::ApiKeys => "api_keys",
        }
    }

    /// Its place in an array that holds something for every endpoint.
    pub fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_stands_at_its_own_index() {
        for (place, endpoint) in Endpoint::ALL.into_iter().enumerate() {
            assert_eq!(endpoint.index(), place);
        }
    }
}
