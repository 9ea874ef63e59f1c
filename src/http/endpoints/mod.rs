//! The endpoints of the API: one file for each resource, and the table of all of them.
//!
//! `docs/adding-things.md` describes how to add one.

pub mod analytics;
pub mod api_keys;
pub mod console;
pub mod exports;
pub mod health;
pub mod hit_streams;
pub mod links;
pub mod preview;
pub mod qr;
pub mod redirect;
pub mod reference;
pub mod site;
pub mod usage;
pub mod webhooks;

use super::endpoint::{ClientLimit, Endpoint, Requirement};
use crate::domain::rate_limit::RateLimit;

/// Every endpoint of the public listener, in the order of the reference.
pub static ENDPOINTS: &[&Endpoint] = &[
    &links::CREATE,
    &links::bulk::CREATE_ALL,
    &links::list::LIST,
    &links::GET,
    &links::change::CHANGE,
    &links::replacement::PUT,
    &links::removal::DELETE,
    &links::block::BLOCK,
    &links::block::UNBLOCK,
    &exports::LINKS,
    &redirect::FOLLOW,
    &preview::GET,
    &qr::GET,
    &analytics::FULL,
    &analytics::SUMMARY,
    &analytics::series::OF_LINK,
    &analytics::breakdown::OF_LINK,
    &analytics::series::OF_KEY,
    &analytics::breakdown::OF_KEY,
    &hit_streams::OF_LINK,
    &hit_streams::OF_KEY,
    &usage::GET,
    &webhooks::STATUS,
    &webhooks::testing::TEST,
    &webhooks::replay::REPLAY,
    &api_keys::LIST,
    &api_keys::CREATE,
    &api_keys::SELF,
    &api_keys::CHANGE,
    &api_keys::REVOKE,
    &api_keys::ROTATE,
    &health::GET,
    &reference::DOCUMENT,
    &reference::PAGE,
    &site::ROBOTS,
    &site::FAVICON,
    &console::PAGE,
    &console::SLASH,
    &console::ASSET,
];

/// The rate limits of keys of all endpoints, each once.
pub fn rate_limits() -> Vec<&'static RateLimit> {
    let mut limits: Vec<&'static RateLimit> = Vec::new();
    for rate_limit in ENDPOINTS.iter().filter_map(|endpoint| endpoint.rate_limit()) {
        if !limits.iter().any(|limit| limit.id == rate_limit.id) {
            limits.push(rate_limit);
        }
    }
    limits
}

/// The endpoints that limit requests by client, with their limits.
pub fn client_limits() -> impl Iterator<Item = (&'static Endpoint, &'static ClientLimit)> {
    ENDPOINTS.iter().filter_map(|&endpoint| match endpoint.requires {
        Requirement::Client(limit) => Some((endpoint, limit)),
        Requirement::Nothing | Requirement::RedirectLimit | Requirement::AnyKey(_) | Requirement::Key(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ptr;

    use super::{ENDPOINTS, rate_limits};

    #[test]
    fn rate_limits_differ_in_number_name_and_setting() {
        let limits = rate_limits();
        let count = |of: BTreeSet<String>| assert_eq!(of.len(), limits.len(), "{of:?}");
        count(limits.iter().map(|limit| limit.id.number().to_string()).collect());
        count(limits.iter().map(|limit| limit.name.to_owned()).collect());
        count(limits.iter().map(|limit| limit.setting.to_owned()).collect());
        // A limit that is declared twice could not be distinguished.
        for rate_limit in ENDPOINTS.iter().filter_map(|endpoint| endpoint.rate_limit()) {
            let is_listed = limits.iter().any(|limit| ptr::eq(*limit, rate_limit));
            assert!(is_listed, "the number of {rate_limit:?} is taken");
        }
    }
}
