//! Quotas: by UTC calendar month, and of live keys.

/// What a key may use in a month; `None` is unlimited.
pub type MonthlyLimit = Option<u64>;

/// How many live keys a key may have created; `None` is unlimited.
pub type KeyLimit = Option<u64>;

/// What a key has used in a month.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonthlyCounts {
    pub links_created: u64,
    pub hits_served: u64,
    pub webhook_deliveries: u64,
}
