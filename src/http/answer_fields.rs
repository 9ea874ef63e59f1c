//! The parts of a request that decide the answer to a short link, or that are in the record of its hit.

use actix_http::RequestHead;
use actix_web::http::header::{ACCEPT_LANGUAGE, DNT, HeaderMap, HeaderName, HeaderValue, REFERER, USER_AGENT};

use crate::domain::bots::PurposeHeader;
use crate::domain::privacy::PrivacySignals;
use crate::domain::utm::{may_have_utm, read_part};
use crate::service::redirects::MAX_HEADER_BYTES;

const SEC_CH_UA_MOBILE: HeaderName = HeaderName::from_static("sec-ch-ua-mobile");
const SEC_GPC: HeaderName = HeaderName::from_static("sec-gpc");
const SEC_PURPOSE: HeaderName = HeaderName::from_static("sec-purpose");
const PURPOSE: HeaderName = HeaderName::from_static("purpose");
const X_MOZ: HeaderName = HeaderName::from_static("x-moz");
const X_PURPOSE: HeaderName = HeaderName::from_static("x-purpose");

/// The value of each field's first line, and what any line of the others says; empty where there is none.
///
/// The fast path finds all of them in one pass over a head's lines. One look-up each took 6 % of a redirect's instructions
/// where there were three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerFields<'a> {
    pub user_agent: &'a [u8],
    pub referer: &'a [u8],
    pub sec_ch_ua_mobile: &'a [u8],
    pub accept_language: &'a [u8],
    /// The query of the request, without its `?`.
    pub query: &'a str,
    /// Whether a header says that the request is a prefetch.
    pub is_prefetch: bool,
    pub privacy: PrivacySignals,
}

impl<'a> AnswerFields<'a> {
    pub fn of(head: &'a RequestHead) -> Self {
        let headers = &head.headers;
        let first = |name| headers.get(name).map_or(&[][..], HeaderValue::as_bytes);
        let is_prefetch = says(headers, SEC_PURPOSE, |value| PurposeHeader::Current.asks_for_prefetch(value))
            || [PURPOSE, X_MOZ, X_PURPOSE]
                .into_iter()
                .any(|name| says(headers, name, |value| PurposeHeader::Older.asks_for_prefetch(value)));
        Self {
            user_agent: first(USER_AGENT),
            referer: first(REFERER),
            sec_ch_ua_mobile: first(SEC_CH_UA_MOBILE),
            accept_language: first(ACCEPT_LANGUAGE),
            query: head.uri.query().unwrap_or_default(),
            is_prefetch,
            privacy: PrivacySignals {
                gpc: says(headers, SEC_GPC, PrivacySignals::in_gpc),
                dnt: says(headers, DNT, PrivacySignals::in_dnt),
            },
        }
    }

    /// What `Sec-CH-UA-Mobile` says.
    pub fn is_mobile(&self) -> Option<bool> {
        match self.sec_ch_ua_mobile {
            b"?1" => Some(true),
            b"?0" => Some(false),
            _ => None,
        }
    }
}

/// Whether a line of a field says something.
fn says(headers: &HeaderMap, name: HeaderName, read: impl Fn(&[u8]) -> bool) -> bool {
    headers.get_all(name).any(|value| read(value.as_bytes()))
}

/// A copy, for an answer that is made when the head's bytes are gone.
#[derive(Debug)]
pub struct OwnedAnswerFields {
    user_agent: Box<[u8]>,
    referer: Box<[u8]>,
    sec_ch_ua_mobile: Box<[u8]>,
    accept_language: Box<[u8]>,
    query: Box<str>,
    is_prefetch: bool,
    privacy: PrivacySignals,
}

impl OwnedAnswerFields {
    pub fn as_fields(&self) -> AnswerFields<'_> {
        let Self { user_agent, referer, sec_ch_ua_mobile, accept_language, query, is_prefetch, privacy } = self;
        let (is_prefetch, privacy) = (*is_prefetch, *privacy);
        AnswerFields { user_agent, referer, sec_ch_ua_mobile, accept_language, query, is_prefetch, privacy }
    }
}

impl From<AnswerFields<'_>> for OwnedAnswerFields {
    /// Of each field as much as a hit's record keeps, and of the query nothing where it has no UTM parameter.
    fn from(fields: AnswerFields<'_>) -> Self {
        let copy = |value: &[u8]| Box::from(&value[..value.len().min(MAX_HEADER_BYTES)]);
        let AnswerFields { user_agent, referer, sec_ch_ua_mobile, accept_language, query, is_prefetch, privacy } =
            fields;
        Self {
            user_agent: copy(user_agent),
            referer: copy(referer),
            sec_ch_ua_mobile: copy(sec_ch_ua_mobile),
            accept_language: copy(accept_language),
            query: if may_have_utm(query) { read_part(query).into() } else { Box::default() },
            is_prefetch,
            privacy,
        }
    }
}
