//! What the API reference says beyond its single operations, in Markdown. Numbers come from where the service has them.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::time::Duration;

use super::{Facts, problems};
use crate::domain::key::{Scope, Tier};
use crate::domain::rate_limit::RateLimitId;
use crate::domain::webhook::RETENTION_DAYS;
use crate::domain::window::WINDOW_SECONDS;
use crate::http::endpoint::{Asks, Endpoint};
use crate::http::endpoints::{self, ENDPOINTS};
use crate::http::problem::MAX_FAULTS;

/// The first page: keys, conventions, errors, limits.
pub fn introduction(facts: &Facts) -> String {
    let base = &facts.base_url;
    format!(
        r#"Short links that redirect, count their hits, and tell your webhooks of every click.

## First steps

Make a link. `SIGNPOST_KEY` is your API key; the operator of the service hands keys out.

```sh
curl -sS {base}/shorten -H "X-API-Key: $SIGNPOST_KEY" -H 'Content-Type: application/json' \
  -d '{{"redirect_url":"https://example.com/"}}'
```

Open the `short_url` of the answer in a browser. Within 2 s the hit is in the link's analytics:

```sh
curl -sS {base}/links/aB3xY9z/analytics -H "X-API-Key: $SIGNPOST_KEY"
```

## Keys and scopes

Send the key as `X-API-Key`, or as `Authorization: Bearer`; where both are sent, `X-API-Key` counts. Redirects, QR codes, the health check and this reference need none.

A key has a tier, `Free` or `Pro`, which sets its limits, and scopes, which say what it may do:

{scopes}
The root key is the operator's. It has every scope, sees every link and key, and has no rate limit, no quota and no `X-Usage` headers. A key with `keys:manage` creates, lists, rotates and revokes the keys below it: those that it created, those that they created, and so on, at most 16 levels below the root key. Each has rate limits and quotas of its own, so a key can have created only so many that are live, neither revoked nor expired. `created_by` of a key is the `key_id` of the one that created it; only the root key's is `null`. Where a key is revoked, the keys below it go on working, unless `descendants=revoke` asks for all of them.

## Requests and answers

- Bodies are JSON in UTF-8, at most 65,536 bytes, nested at most 64 deep. A field that is unknown, or sent twice, is a fault, so that a typing error is heard; so are an unknown query parameter and a string with half a surrogate pair (`"\ud800"`).
- Times are ISO 8601 in UTC with milliseconds: `2026-11-21T07:49:42.028Z`. Ids of keys and hits are UUIDs. Counts are integers up to 2^63 - 1.
- Every answer has `X-Request-Id`: yours, where you send one of 1 to 64 of `A-Za-z0-9._-`, else a new one.
- Every path that answers `GET` answers `HEAD` with the same head and no body. A `HEAD` of a short link is no hit.
- Answers to requests with a key are not to be stored: `Cache-Control: no-store`.
- Lists are paged: give `next_cursor` as `cursor` for the next page, until it is `null`.

## Errors

Every error is a problem document (RFC 9457) of type `application/problem+json`: `type` for programs, `title`, `status`, and a `detail` that says what to do. `errors` of `validation` lists at most the first {MAX_FAULTS} faults, long names cut and ended with `…`; no error body is larger than 32 KiB. `type` is `urn:problem-type:signpost:` and one of these slugs:

{errors}
Refusals are looked for in this order: key (401), scope (403), rate limit (429), existence (404), ownership and the rest (403).

## Limits

Requests in any {window} s, by sliding window:

{rates}
A request that is refused for its key, its scope or its rate takes nothing from the window; every other one does, whatever its answer. Past the limit the answer is 429, and `Retry-After` is truthful: a request after it is let in, unless others with the same key were faster. Endpoints with a key tell in `RateLimit-Policy` and `RateLimit` how much is left. A client is an IPv4 address or an IPv6 /64 network. One that was answered 401 too often is answered 429 in its place, and with a valid key as ever.

Quotas, by calendar month in UTC, and of keys:

{quotas}
Links past the quota are refused, 403. A creation that is answered 503 made no link and took nothing; only where the store did not settle it in time (the answer comes after 10 to 25 s then) it may have, and then the link is counted too. Webhook deliveries past the quota are skipped, and recorded as failed with the error `quota exceeded`. Hits are never limited: a link that exists always redirects.

Other limits: `redirect_url` 8,192 bytes, `data` 10,240 bytes, 10 webhooks a link of 2,048 bytes each; analytics cover 30 days in `daily` and 10 entries in each top list.
"#,
        scopes = scopes(),
        errors = problems::table(),
        window = WINDOW_SECONDS,
        rates = rates(facts),
        quotas = quotas(facts),
    )
}

/// What a scope allows.
fn purpose(scope: Scope) -> &'static str {
    match scope {
        Scope::LinksWrite => "make links",
        Scope::LinksRead => "read the links that the key made",
        Scope::AnalyticsRead => "read their analytics",
        Scope::UsageRead => "read the key's own usage",
        Scope::WebhooksRead => "read how their webhooks fare",
        Scope::KeysManage => "make, list, rotate and revoke keys; a key does not have it unless asked for",
    }
}

fn scopes() -> String {
    let mut table = String::from("| scope | allows to |\n|---|---|\n");
    for scope in Scope::ALL {
        // Writing into a string can't fail, here and below.
        let _ = writeln!(table, "| `{}` | {} |", scope.name(), purpose(scope));
    }
    table
}

fn named(endpoint: &Endpoint) -> String {
    format!("`{} {}`", endpoint.methods[0], endpoint.path)
}

/// What a limit counts: one operation, or several together.
fn counted(limit: RateLimitId) -> String {
    let is_of_limit = |endpoint: &&&Endpoint| endpoint.access().is_some_and(|access| access.rate_limit.id == limit);
    let counted: Vec<&Endpoint> = ENDPOINTS.iter().filter(is_of_limit).copied().collect();
    let shortest = counted.iter().map(|endpoint| endpoint.path).min_by_key(|path| path.len()).unwrap_or_default();
    let is_below = |endpoint: &Endpoint| {
        endpoint.path.strip_prefix(shortest).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match counted.as_slice() {
        [only] => named(only),
        several if several.len() == ENDPOINTS.iter().filter(|endpoint| is_below(endpoint)).count() => {
            format!("all of `{shortest}` together")
        }
        several => {
            format!("{} together", several.iter().map(|endpoint| named(endpoint)).collect::<Vec<_>>().join(", "))
        }
    }
}

fn rates(facts: &Facts) -> String {
    let number = |limit: Option<NonZeroU32>| limit.map_or("none".into(), |limit| grouped(limit.get().into()));
    let mut table = String::from("| endpoint | Free | Pro | counted by |\n|---|---|---|---|\n");
    for rate_limit in endpoints::rate_limits() {
        let [free, pro] = [Tier::Free, Tier::Pro].map(|tier| number(facts.rates.of_tier(tier, rate_limit.id)));
        let _ = writeln!(table, "| {} | {free} | {pro} | key |", counted(rate_limit.id));
    }
    let redirect = ("`GET /{short_id}`, all links of a node together".to_owned(), facts.redirect_per_minute);
    let by_client = facts.by_client.iter().map(|(endpoint, limit)| (named(endpoint), *limit));
    let unauthorized = ("answers 401, all endpoints together".to_owned(), facts.unauthorized_per_minute);
    for (counted, limit) in [redirect].into_iter().chain(by_client).chain([unauthorized]) {
        let limit = number(limit);
        let _ = writeln!(table, "| {counted} | {limit} | {limit} | client |");
    }
    table + &format!("| {} | none | none | |\n", unlimited())
}

/// The endpoints that anyone may call as often as they like. The limit of redirects is not that of an endpoint.
fn unlimited() -> String {
    let is_unlimited = |endpoint: &&&Endpoint| {
        matches!(endpoint.asks, Asks::Nothing) && endpoint.path != endpoints::redirect::FOLLOW.path
    };
    let mut paths: Vec<&str> = ENDPOINTS.iter().filter(is_unlimited).map(|endpoint| endpoint.path).collect();
    paths.sort_unstable();
    let paths: Vec<String> = paths.into_iter().map(|path| format!("`{path}`")).collect();
    format!("`GET {}", paths.join(", ").trim_start_matches('`'))
}

fn quotas(facts: &Facts) -> String {
    let number = |limit: Option<u64>| limit.map_or("unlimited".into(), grouped);
    let (free, pro) = (&facts.plans.free, &facts.plans.pro);
    format!(
        "| metric | Free | Pro |\n|---|---|---|\n\
         | links created | {} | {} |\n\
         | hits served | unlimited | unlimited |\n\
         | webhook deliveries | {} | {} |\n\
         | live keys created by a key, at any time | {} | {} |\n",
        number(free.links_per_month),
        number(pro.links_per_month),
        number(free.webhook_deliveries_per_month),
        number(pro.webhook_deliveries_per_month),
        number(free.child_keys),
        number(pro.child_keys),
    )
}

/// As many as there may be waits between tries.
const ORDINALS: [&str; 10] =
    ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"];

/// What a receiver has to know.
pub fn webhook(facts: &Facts) -> String {
    let timeout = spoken(facts.webhook_timeout);
    let tries = match facts.retry_delays.as_slice() {
        [] => "A delivery is tried once; if that fails, it has failed for good.".to_owned(),
        delays => {
            let waits = delays.iter().zip(ORDINALS);
            let waits: Vec<String> =
                waits.map(|(wait, place)| format!("{} after the {place} failure", spoken(*wait))).collect();
            let (tries, waits) = (delays.len() + 1, waits.join(", "));
            format!("A delivery is tried {tries} times in all: at once, {waits} (±10 %). Then it has failed for good.")
        }
    };
    format!(
        r"Sent to every webhook URL of a link, in the background, for each hit. One delivery is one hit for one URL.

**Success** is an answer of 2xx, its head within {timeout} of the start of the try. Redirects are not followed. Everything else is a failure, with its reason as text: `http 500`, `timed out`, `connection refused`, `connection reset`, `unreachable`, `dns`, `tls`, `invalid response`, `blocked address`.

**Tries.** {tries} Deliveries are made at least once: after a crash of the service one may be made again, none is lost. `hit_id` and `webhook-id` are the same on every try, so that repeats can be dropped.

**Quota.** A delivery counts once, when it is first tried. Past the monthly quota it is not sent, and recorded as failed with the error `quota exceeded` and 0 attempts.

**Addresses.** Only public addresses are called; loopback, private and link-local networks are not, whatever name leads there. Such an address in a URL, and `localhost`, is refused when the link is made.

**Status.** `GET /{{short_id}}/webhooks/status` tells how deliveries fare, for {RETENTION_DAYS} days.

**Signature.** Check it before you trust a request. `webhook-id`, `webhook-timestamp` and `webhook-signature` are as [Standard Webhooks](https://www.standardwebhooks.com) has them, with the `webhook_secret` of the key that made the link: its libraries verify a request unchanged, its age included, which tells a replay. In Python:

```python
import base64, hashlib, hmac, time

def is_genuine(secret: str, headers, body: bytes) -> bool:
    name, sent, signatures = (
        headers.get(header, '').encode(errors='replace')
        for header in ('webhook-id', 'webhook-timestamp', 'webhook-signature')
    )
    key = base64.b64decode(secret.removeprefix('whsec_'))
    digest = hmac.new(key, b'%b.%b.%b' % (name, sent, body), hashlib.sha256).digest()
    expected = b'v1,' + base64.b64encode(digest)
    signed = any(hmac.compare_digest(expected, given) for given in signatures.split())
    return signed and abs(time.time() - int(sent)) <= 300
```

While a rotation's grace lasts, `webhook-signature` carries two signatures, separated by a space.

`X-Webhook-Signature` is `sha256=` and the lower-case hex of the HMAC-SHA256 of the raw body, keyed with the whole text of the secret, `whsec_` included; during a grace, with that of the new one. It has no time in it, and can't tell a replay."
    )
}

/// A duration in words: `10 s`, `1.5 s`, `5 min`.
fn spoken(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if duration.subsec_millis() == 0 && seconds >= 60 && seconds.is_multiple_of(60) {
        format!("{} min", seconds / 60)
    } else {
        format!("{} s", duration.as_secs_f64())
    }
}

/// A number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations_are_written_for_people() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (50_000, "50,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        for (millis, text) in [(10_000, "10 s"), (1_500, "1.5 s"), (60_000, "1 min"), (90_000, "90 s"), (500, "0.5 s")]
        {
            assert_eq!(spoken(Duration::from_millis(millis)), text);
        }
    }
}
