//! The general chapters of the API reference, in Markdown. Numbers come from the code and the settings.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::time::Duration;

use super::{Facts, problems};
use crate::domain::bots::BotKind;
use crate::domain::key::{Scope, Tier};
use crate::domain::rate_limit::RateLimitId;
use crate::domain::webhook::RETENTION_DAYS;
use crate::domain::window::WINDOW_SECONDS;
use crate::http::endpoint::{Endpoint, Requirement};
use crate::http::endpoints::{self, ENDPOINTS};
use crate::http::problem::MAX_FAULTS;

/// The introduction: keys, conventions, errors, limits.
pub fn introduction(facts: &Facts) -> String {
    let base = &facts.base_url;
    format!(
        r#"Short links that redirect, count their hits, and notify your webhooks of every hit.

## First steps

Create a link. `SIGNPOST_API_KEY` is your API key, which you get from the operator of the service.

```sh
curl -sS {base}/shorten -H "X-API-Key: $SIGNPOST_API_KEY" -H 'Content-Type: application/json' \
  -d '{{"redirect_url":"https://example.com/"}}'
```

Open the `short_url` of the answer in a browser. Within 2 s the hit is in the link's analytics:

```sh
curl -sS {base}/links/aB3xY9z/analytics -H "X-API-Key: $SIGNPOST_API_KEY"
```

## Keys and scopes

Send the key as `X-API-Key`, or as `Authorization: Bearer`; if both are sent, `X-API-Key` is used. Redirects, QR codes, the health check and this reference need no key.

A key has a tier, `Free` or `Pro`, which sets its limits, and scopes, which are its permissions:

{scopes}
The root key is the operator's. It has every scope, sees and changes every link and key, blocks links, and has no rate limit, no quota and no `X-Usage` headers. A key with `keys:manage` creates, lists, changes, rotates and revokes the keys below it: those that it created, those that they created, and so on, at most 16 levels below the root key. Each key has its own rate limits and quotas, so the number of live keys (neither revoked nor expired) that a key has created is limited. `created_by` of a key is the `key_id` of its creator; it is `null` only for the root key. If a key is revoked, the keys below it remain valid, unless the request has `descendants=revoke`. A change of a key does not change the keys below it either. Every key reads its own record with `GET /api-keys/self`.

## Requests and answers

- Bodies are JSON in UTF-8, at most 65,536 bytes (1,048,576 for `POST /shorten/bulk`), nested at most 64 deep. An unknown field or query parameter is an error, so that typing errors are detected; so are a repeated field (not inside `data`, whose names are the client's) and a string with an unpaired surrogate (`"\ud800"`).
- Times in answers are ISO 8601 in UTC with milliseconds: `2026-11-21T07:49:42.028Z`. Times in requests are such times from 1970 to 9999 with seconds, and with any offset from UTC. Ids of keys and hits are UUIDs. Counts are integers up to 2^63 - 1.
- Every answer has `X-Request-Id`: yours, if you send one with 1 to 64 characters of `A-Za-z0-9._-`, else a new one.
- Every path with `GET` also has `HEAD`, with the same head and no body. A `HEAD` of a short link is not a hit.
- Redirects, pages and errors have `X-Robots-Tag: noindex`, unless the operator has turned it off.
- Answers to requests with a key must not be cached: `Cache-Control: no-store`.
- `{{short_id}}` in a path is the name of a link: its `slug`, or its generated id. Case matters. A link keeps its name until it is deleted.
- The `ETag` of a link is its `revision`. Send it as `If-Match` with `PATCH`, `PUT` or `DELETE`, and the request is refused (412) if the link has changed since it was read. Tags are compared strongly; one that is weak or malformed matches nothing.
- Lists have pages: send `next_cursor` as `cursor` for the next page, until it is `null`.

## Repeating a request safely

`POST /shorten`, `/shorten/bulk` and `/api-keys` take an `Idempotency-Key`: a text that is different for each operation. If an answer does not reach you, send the same request (the same bytes and `Content-Type`) with the same key again, as often as you like: it is done once, and answered as the first time, with `Idempotent-Replayed: true` and the `X-Usage-…` headers of now. This takes nothing from quotas, but counts in the rate limit.

- A key is remembered for 24 hours from its first request on, for each API key and endpoint by itself. Another body is answered 422 `idempotency-key-reused`.
- While the first request is at work, the answer is 409 `idempotency-in-progress`: repeat after `Retry-After`. If a node died meanwhile, this lasts for at most 30 s; then the request is done to its end.
- Only what was made is remembered: after any other answer than 2xx, and if no link of `/shorten/bulk` was created, the key is free.
- The answer of `/shorten/bulk` is remembered as a whole: send a link in it that failed with 503 again with another key.
- Secrets are not stored: a repeated `POST /api-keys` is answered with `key` and `webhook_secret` `null`. Rotate the key if you never saw them.
- The header is an error with any other `PATCH`, `PUT`, `POST` or `DELETE`, and ignored with `GET`.

## Errors

Every error is a problem document (RFC 9457) of type `application/problem+json`, except that browsers get a page where a short link or its preview can't be answered. A problem has `type` for programs, `title`, `status`, and a `detail` that says what to do. `errors` of `validation` lists at most the first {MAX_FAULTS} errors; long names are cut and end with `…`. No problem document is larger than 32 KiB. `type` is `urn:problem-type:signpost:` and one of these slugs:

{errors}
Requests are checked in this order: key (401), scope (403), rate limit (429), body (415, 413, 400), idempotency key (422, 409), existence (404), owner (403), conditions (412), fields and parameters (422), quotas (403), names (409). A `GET` with a wrong query is answered 422 before anything is looked for.

## Limits

Requests in a sliding window of {window} s:

{rates}
A request that is refused because of its key, its scope or the rate limit does not count; every other request counts, independent of its answer. Above the limit the answer is 429, and `Retry-After` is exact: a request after that time is answered, unless other requests with the same key came first. Endpoints with a key report the remaining requests in `RateLimit-Policy` and `RateLimit`. A client is an IPv4 address or an IPv6 /64 network. A client with too many answers 401 gets 429 instead of 401; its requests with a valid key are answered.

Two other limits are answered 429, whose `Retry-After` is only a time to look again: of streams at once, and of changes of a link with webhooks.

Quotas by calendar month in UTC, and limits of keys and of streams:

{quotas}
Links above the quota are refused with 403. A creation that is answered 503 has created no link and used no quota. The exception is a store that did not confirm the outcome in time (the answer then comes after 10 to 25 s): the link may exist, and then it is counted. Webhook deliveries above the quota are not sent, and recorded as failed with the error `quota exceeded`. Hits are never limited: quotas and limits of keys do not stop redirects.

Other limits: 96 fields and 131,072 bytes in the head of a request, `redirect_url` 8,192 bytes as it is sent (its normalized form may be longer), `data` 10,240 bytes, 10 webhooks a link at once of 2,048 bytes each, and 200 different ones in its life; a link with webhooks can be changed 1,000 times in 33 days, then the answer is 429; analytics cover 30 days in `daily` and 10 entries in each top list, a series has at most 2,000 points, a breakdown 1,000 labels.
"#,
        scopes = scopes(),
        errors = problems::table(),
        window = WINDOW_SECONDS,
        rates = rates(facts),
        quotas = quotas(facts),
    )
}

/// The permission of a scope.
fn purpose(scope: Scope) -> &'static str {
    match scope {
        Scope::LinksWrite => "create links, and change and delete those that the key has created",
        Scope::LinksRead => "read the links that the key has created, with their numbers of hits in lists and exports",
        Scope::AnalyticsRead => "read their analytics, and stream their hits",
        Scope::UsageRead => "read the key's own usage",
        Scope::WebhooksRead => "read the state of their webhooks",
        Scope::WebhooksWrite => "test their webhooks, and replay deliveries",
        Scope::KeysManage => "create, list, change, rotate and revoke keys; a key has it only if requested",
    }
}

fn scopes() -> String {
    let mut table = String::from("| scope | permission |\n|---|---|\n");
    for scope in Scope::ALL {
        let _ = writeln!(table, "| `{}` | {} |", scope.name(), purpose(scope));
    }
    table
}

fn format_endpoint(endpoint: &Endpoint) -> String {
    format!("`{} {}`", endpoint.methods[0], endpoint.path)
}

/// The operations that a limit counts, one or several together.
fn counted(limit: RateLimitId) -> String {
    let is_of_limit = |endpoint: &&&Endpoint| endpoint.rate_limit().is_some_and(|counted| counted.id == limit);
    let counted: Vec<&Endpoint> = ENDPOINTS.iter().filter(is_of_limit).copied().collect();
    let shortest = counted.iter().map(|endpoint| endpoint.path).min_by_key(|path| path.len()).unwrap_or_default();
    let is_below = |endpoint: &Endpoint| {
        endpoint.path.strip_prefix(shortest).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match counted.as_slice() {
        [only] => format_endpoint(only),
        several if several.len() == ENDPOINTS.iter().filter(|endpoint| is_below(endpoint)).count() => {
            format!("all of `{shortest}` together")
        }
        several => {
            format!(
                "{} together",
                several.iter().map(|endpoint| format_endpoint(endpoint)).collect::<Vec<_>>().join(", ")
            )
        }
    }
}

fn rates(facts: &Facts) -> String {
    let number = |limit: Option<NonZeroU32>| limit.map_or("none".into(), |limit| format_number(limit.get().into()));
    let mut table = String::from("| endpoint | Free | Pro | counted by |\n|---|---|---|---|\n");
    for rate_limit in endpoints::rate_limits() {
        let [free, pro] = [Tier::Free, Tier::Pro].map(|tier| number(facts.rates.of_tier(tier, rate_limit.id)));
        let _ = writeln!(table, "| {} | {free} | {pro} | key |", counted(rate_limit.id));
    }
    let redirects = ENDPOINTS.iter().filter(|endpoint| matches!(endpoint.requires, Requirement::RedirectLimit));
    let redirects: Vec<String> = redirects.map(|endpoint| format_endpoint(endpoint)).collect();
    let redirect = (format!("{}, all links of a node together", redirects.join(", ")), facts.redirect_per_minute);
    let by_client = facts.by_client.iter().map(|(endpoint, limit)| (format_endpoint(endpoint), *limit));
    let unauthorized = ("answers 401, all endpoints together".to_owned(), facts.unauthorized_per_minute);
    for (counted, limit) in [redirect].into_iter().chain(by_client).chain([unauthorized]) {
        let limit = number(limit);
        let _ = writeln!(table, "| {counted} | {limit} | {limit} | client |");
    }
    table + &format!("| {} | none | none | |\n", unlimited())
}

/// The endpoints without a key and without a limit.
fn unlimited() -> String {
    let is_unlimited = |endpoint: &&&Endpoint| matches!(endpoint.requires, Requirement::Nothing);
    let mut paths: Vec<&str> = ENDPOINTS.iter().filter(is_unlimited).map(|endpoint| endpoint.path).collect();
    paths.sort_unstable();
    let paths: Vec<String> = paths.into_iter().map(|path| format!("`{path}`")).collect();
    format!("`GET {}", paths.join(", ").trim_start_matches('`'))
}

fn quotas(facts: &Facts) -> String {
    let number = |limit: Option<u64>| limit.map_or("unlimited".into(), format_number);
    let (free, pro) = (&facts.plans.free, &facts.plans.pro);
    format!(
        "| metric | Free | Pro |\n|---|---|---|\n\
         | links created | {} | {} |\n\
         | hits served | unlimited | unlimited |\n\
         | webhook deliveries | {} | {} |\n\
         | live keys created by a key, at any time | {} | {} |\n\
         | streams of hits at once | {} | {} |\n",
        number(free.links_per_month),
        number(pro.links_per_month),
        number(free.webhook_deliveries_per_month),
        number(pro.webhook_deliveries_per_month),
        number(free.child_keys),
        number(pro.child_keys),
        facts.streams[0],
        facts.streams[1],
    )
}

/// As many as the maximum number of delays between attempts.
const ORDINALS: [&str; 10] =
    ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"];

/// The documentation for receivers of webhooks.
pub fn webhook(facts: &Facts) -> String {
    let timeout = format_duration(facts.webhook_timeout);
    let tries = match facts.retry_delays.as_slice() {
        [] => "A delivery has one attempt; if that fails, the delivery has failed.".to_owned(),
        delays => {
            let waits = delays.iter().zip(ORDINALS);
            let waits: Vec<String> =
                waits.map(|(wait, place)| format!("{} after the {place} failure", format_duration(*wait))).collect();
            let (tries, waits) = (delays.len() + 1, waits.join(", "));
            format!("A delivery has {tries} attempts: at once, {waits} (±10 %). Then it has failed.")
        }
    };
    let suspension = facts.suspend_after.map_or_else(String::new, |failures| {
        format!(
            r"**Suspension.** After {failures} failed deliveries in a row of one URL of one link, over at least 24 hours, its deliveries are not sent, and recorded as failed with the error `suspended`, until a test of the URL succeeds or the link is changed. `GET /{{short_id}}/webhooks/status` shows `suspended_at` meanwhile. What was not sent can be replayed then.

"
        )
    });
    let bots = BotKind::ALL.map(|kind| format!("`{}`", kind.label())).join(", ");
    format!(
        r"Sent to every webhook URL of a link, in the background, for each hit. One delivery is one hit for one URL.

**Success** is an answer 2xx whose head arrives within {timeout} of the start of the attempt. Redirects are not followed. Everything else is a failure, with its reason as text: `http 500`, `timed out`, `connection refused`, `connection reset`, `unreachable`, `dns`, `tls`, `invalid response`, `blocked address`, `connection failed`, `interrupted`. What can't be sent at all fails with `link not found`, `malformed url` or `webhook secret unreadable`.

**Bots.** Deliveries of hits that no person made have the header `Signpost-Bot`, at each attempt, with what made the hit: {bots}. It is not signed. A link with `skip_bots` makes no such deliveries. Nothing else in a delivery tells of a visitor.

**Attempts.** {tries} Deliveries are made at least once: after a crash of the service a delivery may be repeated, but none is lost. `hit_id` and `webhook-id` are the same for all attempts, so that receivers can ignore repeated deliveries.

**Quota.** A delivery counts once, at its first attempt. Above the monthly quota it is not sent, and recorded as failed with the error `quota exceeded` and 0 attempts.

**Addresses.** Deliveries go to public addresses only, not to loopback, private and link-local networks; the addresses of host names are checked, too. A URL with such an address, or with `localhost`, is refused when the link is created.

**Status.** `GET /{{short_id}}/webhooks/status` returns the state of deliveries of the last {RETENTION_DAYS} days.

**Test.** `POST /{{short_id}}/webhooks/test` sends a request at once, with the header `Signpost-Test: true` and the `hit_id` of no hit.

**Replay.** `POST /{{short_id}}/webhooks/replay` queues deliveries again that were delivered or have failed: the same `hit_id`, `webhook-id` and body, with all attempts anew. Each counts in the quota once more.

{suspension}**Signature.** Check it before you trust a request. `webhook-id`, `webhook-timestamp` and `webhook-signature` follow [Standard Webhooks](https://www.standardwebhooks.com), with the `webhook_secret` of the key that created the link. Its libraries verify a request, including its age, which protects against replay. In Python:

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

During the grace period of a rotation, `webhook-signature` has two signatures, separated by a space.

`X-Webhook-Signature` is `sha256=` and the lower-case hex of the HMAC-SHA256 of the raw body, keyed with the whole text of the secret, including `whsec_`; during a grace period, with the new secret. It has no timestamp and does not protect against replay."
    )
}

/// A duration as text: `10 s`, `1.5 s`, `5 min`.
fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if duration.subsec_millis() == 0 && seconds >= 60 && seconds.is_multiple_of(60) {
        format!("{} min", seconds / 60)
    } else {
        format!("{} s", duration.as_secs_f64())
    }
}

/// A number with commas between groups of three digits.
fn format_number(number: u64) -> String {
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
            assert_eq!(format_number(number), text);
        }
        for (millis, text) in [(10_000, "10 s"), (1_500, "1.5 s"), (60_000, "1 min"), (90_000, "90 s"), (500, "0.5 s")]
        {
            assert_eq!(format_duration(Duration::from_millis(millis)), text);
        }
    }
}
