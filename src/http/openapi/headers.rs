//! Every response header of the API, described once.

use serde_json::{Map, Value, json};

/// A header: its name, whether every answer that lists it carries it, what it says, its schema, an example.
type Row = (&'static str, bool, &'static str, fn() -> Value);

const HEADERS: [Row; 12] = [
    (
        "X-Request-Id",
        true,
        "The request's id, also in the service's log: the one that the client sent in `X-Request-Id` where that is 1 to 64 \
         of `A-Za-z0-9._-`, else a new one.",
        || json!({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$", "examples": ["a1TzJ0cQk9xBAAAAAAC"]}),
    ),
    (
        "Cache-Control",
        true,
        "How long, and by whom, the answer may be kept.",
        || json!({"type": "string", "examples": ["no-store"]}),
    ),
    (
        "RateLimit-Policy",
        false,
        "The rate limit: its name, `q` requests in `w` seconds. Not where there is no limit.",
        || json!({"type": "string", "pattern": "^\"[a-z_]+\";q=[0-9]+;w=[0-9]+$", "examples": ["\"shorten\";q=10;w=60"]}),
    ),
    (
        "RateLimit",
        false,
        "What is left of the rate limit: `r` requests now, and `t` seconds until there is more.",
        || json!({"type": "string", "pattern": "^\"[a-z_]+\";r=[0-9]+;t=[0-9]+$", "examples": ["\"shorten\";r=9;t=42"]}),
    ),
    (
        "Retry-After",
        true,
        "Seconds after which the request may be sent again, and is let in.",
        || json!({"type": "integer", "minimum": 1, "examples": [17]}),
    ),
    (
        "X-Usage-Links-Created",
        false,
        "Links created this month, this one included. Not for the root key.",
        || json!({"type": "integer", "minimum": 0, "examples": [12]}),
    ),
    (
        "X-Usage-Links-Limit",
        false,
        "Monthly link creation limit, or the word `unlimited`. Not for the root key.",
        || json!({"type": "string", "pattern": "^([0-9]+|unlimited)$", "examples": ["100"]}),
    ),
    (
        "ETag",
        true,
        "Names this very content; for `If-None-Match`.",
        || json!({"type": "string", "pattern": "^\"[^\"]+\"$", "examples": ["\"3b1f9c0e7a52\""]}),
    ),
    (
        "Location",
        true,
        "Target of the redirect.",
        || json!({"type": "string", "format": "uri", "examples": ["https://example.com/summer?ref=mail"]}),
    ),
    (
        "Content-Security-Policy",
        true,
        "What the page may load: nothing but what it brings along.",
        || json!({"type": "string"}),
    ),
    ("Allow", true, "The methods that the path answers.", || json!({"type": "string", "examples": ["GET, HEAD"]})),
    (
        "WWW-Authenticate",
        true,
        "How to authenticate.",
        || json!({"type": "string", "examples": ["ApiKey realm=\"signpost\", header=\"X-API-Key\""]}),
    ),
];

/// The headers, for the document's components.
pub fn components() -> Map<String, Value> {
    let component = |(name, required, description, schema): Row| {
        (name.to_owned(), json!({"description": description, "required": required, "schema": schema()}))
    };
    HEADERS.map(component).into_iter().collect()
}

/// Puts a header into a response, by reference.
pub fn add(response: &mut Value, name: &str) {
    response["headers"][name] = json!({"$ref": format!("#/components/headers/{name}")});
}
