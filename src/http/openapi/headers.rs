//! All response headers of the API, each described once.

use serde_json::{Map, Value, json};

use crate::http::merge_patch;

/// A header: its name, whether every answer that lists it has it, its description, its schema with an example.
type HeaderRow = (&'static str, bool, &'static str, fn() -> Value);

const HEADERS: [HeaderRow; 17] = [
    (
        "X-Request-Id",
        true,
        "The request's id, also in the service's log: the `X-Request-Id` that the client sent if it has 1 to 64 \
         of `A-Za-z0-9._-`, else a new one.",
        || json!({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$", "examples": ["a1TzJ0cQk9xBAAAAAAC"]}),
    ),
    (
        "Cache-Control",
        true,
        "How long, and by which caches, the answer may be stored.",
        || json!({"type": "string", "examples": ["no-store"]}),
    ),
    (
        "RateLimit-Policy",
        false,
        "The rate limit: its name, `q` requests in `w` seconds. Absent if there is no limit.",
        || json!({"type": "string", "pattern": "^\"[a-z_]+\";q=[0-9]+;w=[0-9]+$", "examples": ["\"shorten\";q=10;w=60"]}),
    ),
    (
        "RateLimit",
        false,
        "The remaining rate limit: `r` requests now, and `t` seconds until more are available.",
        || json!({"type": "string", "pattern": "^\"[a-z_]+\";r=[0-9]+;t=[0-9]+$", "examples": ["\"shorten\";r=9;t=42"]}),
    ),
    (
        "Retry-After",
        false,
        "Seconds after which the request may be sent again. With 409 only for `idempotency-in-progress`.",
        || json!({"type": "integer", "minimum": 1, "examples": [17]}),
    ),
    (
        "X-Usage-Links-Created",
        false,
        "Links created this month, including this one. Absent for the root key.",
        || json!({"type": "integer", "minimum": 0, "examples": [12]}),
    ),
    (
        "X-Usage-Links-Limit",
        false,
        "Monthly link creation limit, or the word `unlimited`. Absent for the root key.",
        || json!({"type": "string", "pattern": "^([0-9]+|unlimited)$", "examples": ["100"]}),
    ),
    (
        "Idempotent-Replayed",
        false,
        "The answer is that to an earlier request with this `Idempotency-Key`: nothing was done again. Other headers are of now.",
        || json!({"type": "string", "pattern": "^true$", "examples": ["true"]}),
    ),
    (
        "Vary",
        true,
        "The answer depends on this header of the request.",
        || json!({"type": "string", "examples": ["Accept"]}),
    ),
    (
        "X-Robots-Tag",
        false,
        "Tells search engines not to list this answer. Absent if the operator has turned it off.",
        || json!({"type": "string", "pattern": "^noindex$", "examples": ["noindex"]}),
    ),
    (
        "ETag",
        false,
        "Identifies this content: of an image or a page, for `If-None-Match`; of a link, its `revision`, for `If-Match`. Absent \
         from an answer 412 if there is no link.",
        || json!({"type": "string", "pattern": "^(W/)?\"[^\"]+\"$", "examples": ["\"3b1f9c0e7a52\""]}),
    ),
    (
        "Location",
        true,
        "Target of the redirect; of a link that was created by `PUT`, where its record is. That of the console is \
         relative.",
        || json!({"type": "string", "format": "uri-reference", "examples": ["https://example.com/summer?ref=mail"]}),
    ),
    ("Content-Security-Policy", true, "What the page may load.", || json!({"type": "string"})),
    ("Allow", true, "The methods that the path supports.", || json!({"type": "string", "examples": ["GET, HEAD"]})),
    (
        "Accept-Patch",
        true,
        "The media types of a `PATCH`.",
        || json!({"type": "string", "examples": [merge_patch::MEDIA_TYPES.join(", ")]}),
    ),
    (
        "X-Accel-Buffering",
        true,
        "Asks proxies to pass on each event at once.",
        || json!({"type": "string", "pattern": "^no$", "examples": ["no"]}),
    ),
    (
        "WWW-Authenticate",
        true,
        "How to authenticate.",
        || json!({"type": "string", "examples": ["ApiKey realm=\"signpost\", header=\"X-API-Key\""]}),
    ),
];

/// The headers, for the document's components.
pub fn components() -> Map<String, Value> {
    let component = |(name, required, description, schema): HeaderRow| {
        (name.to_owned(), json!({"description": description, "required": required, "schema": schema()}))
    };
    HEADERS.map(component).into_iter().collect()
}

/// Adds a header to a response, by reference.
pub fn add(response: &mut Value, name: &str) {
    response["headers"][name] = json!({"$ref": format!("#/components/headers/{name}")});
}
