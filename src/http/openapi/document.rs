//! The `OpenAPI` document: what the handlers say of themselves, and what is true of all of them.

use serde_json::{Map, Value, json};
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Described;

use super::schemas::{DeliveryStatusName, DescendantsName, HitEvent, ImageFormat, ProblemDocument};
use super::{Facts, guide, headers, problems};
use crate::domain::signature::{WebhookSecret, sign_hex, standard_signature};
use crate::domain::webhook_event::hit_event_body;
use crate::http::gate::Access;
use crate::http::{analytics, api_keys, health, links, qr, redirect, routes, usage, webhooks};

/// What the handlers say of themselves; a test holds it against the route table.
#[derive(OpenApi)]
#[openapi(
    info(title = "Signpost"),
    paths(
        links::create,
        links::get,
        redirect::by_route,
        qr::get,
        analytics::full,
        analytics::summary,
        usage::get,
        webhooks::status,
        api_keys::create,
        api_keys::list,
        api_keys::revoke,
        api_keys::rotate,
        health::get,
        super::document,
        super::docs,
    ),
    components(schemas(HitEvent, ProblemDocument, ImageFormat, DeliveryStatusName, DescendantsName)),
    tags(
        (name = "Links", description = "Make short links, follow them, draw them."),
        (name = "Analytics", description = "Who followed a link: how often, when, from where, with what."),
        (name = "Usage", description = "What a key has used of its month."),
        (name = "Webhooks", description = "How deliveries fare. What is delivered is under *The webhook*."),
        (name = "API keys", description = "Make, list, revoke and rotate keys. All four share one rate limit."),
        (name = "Service", description = "The service itself."),
    ),
)]
struct Handlers;

/// The secret that signs the example of a webhook request: the bytes 0 to 31.
const EXAMPLE_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Makes the document.
pub fn document(facts: &Facts) -> Value {
    let described: Described = Handlers::openapi();
    // Can't fail: its maps have strings for keys.
    let mut document = serde_json::to_value(described).unwrap_or_default();
    flatten(&mut document);
    document["info"]["description"] = guide::introduction(facts).into();
    document["servers"] = json!([{"url": facts.base_url}]);
    // By reference: openapi-generator 7 takes a webhook that stands here itself for an operation of the service, and writes
    // clients that do not compile.
    document["webhooks"] = json!({"hit": {"$ref": "#/components/pathItems/Hit"}});
    document["components"]["pathItems"] = json!({"Hit": {"post": webhook(facts)}});
    document["components"]["headers"] = headers::components().into();
    document["components"]["responses"] = problems::shared_responses();
    document["components"]["securitySchemes"] = json!({
        "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The key as it was issued."},
        "Bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "The same key, for clients that send nothing else. `X-API-Key` counts where both are sent.",
        },
    });
    for path in routes::table() {
        for operation in path.operations {
            for method in operation.methods {
                let at = format!("/paths/{}/{}", escaped(path.pattern), method.as_str().to_lowercase());
                if let Some(described) = document.pointer_mut(&at) {
                    complete(described, path.pattern, operation.access);
                }
            }
        }
    }
    add_links(&mut document, "/paths/~1shorten/post/responses/200", "short_id");
    add_links(&mut document, "/paths/~1api-keys/post/responses/201", "key_id");
    for response in document["components"]["responses"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        headers::add(response, "X-Request-Id");
    }
    document
}

/// Adds to an operation what follows from its place in the route table.
fn complete(operation: &mut Value, path: &str, access: Option<Access>) {
    for response in responses(operation) {
        // Those that the handler names are described in one place.
        let named: Vec<String> = response["headers"].as_object().into_iter().flat_map(Map::keys).cloned().collect();
        for name in &named {
            headers::add(response, name);
        }
        if access.is_some() {
            headers::add(response, "Cache-Control");
        }
    }
    // A body that may be left out is no body that may be `null`.
    let body = operation.pointer_mut("/requestBody/content/application~1json/schema");
    if let Some(body) = body
        && let Some(choices) = body["oneOf"].as_array()
        && let Some(choice) = choices.iter().find(|choice| choice["type"] != "null")
    {
        *body = choice.clone();
    }
    problems::add_to(operation, path, access);
    if let Some(access) = access {
        let scopes = if access.or_self { json!([]) } else { json!([access.scope.name()]) };
        operation["security"] = json!([{"ApiKey": scopes}, {"Bearer": scopes}]);
        for status in statuses(operation).iter().filter(|status| *status != "401") {
            headers::add(&mut operation["responses"][status], "RateLimit-Policy");
            headers::add(&mut operation["responses"][status], "RateLimit");
        }
    }
    responses(operation).for_each(|response| headers::add(response, "X-Request-Id"));
}

fn responses(operation: &mut Value) -> impl Iterator<Item = &mut Value> {
    operation["responses"].as_object_mut().into_iter().flat_map(Map::values_mut)
}

fn statuses(operation: &Value) -> Vec<String> {
    operation["responses"].as_object().into_iter().flat_map(Map::keys).cloned().collect()
}

/// Makes objects that are put together with `allOf` into plain ones: easier to read, and openapi-generator 7 forgets which
/// fields of a part may be `null`.
fn flatten(document: &mut Value) {
    let schemas = document["components"]["schemas"].clone();
    for schema in document["components"]["schemas"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        let Some(parts) = schema.as_object_mut().and_then(|schema| schema.remove("allOf")) else { continue };
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for part in parts.as_array().into_iter().flatten() {
            let name = part["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
            let part = name.map_or(part, |name| &schemas[name]);
            properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
            required.extend(part["required"].as_array().cloned().unwrap_or_default());
        }
        schema["type"] = "object".into();
        schema["properties"] = properties.into();
        schema["required"] = required.into();
    }
}

/// Says of an answer which operations take what it made.
fn add_links(document: &mut Value, answer: &str, parameter: &str) {
    let items = document["paths"].as_object().into_iter().flatten();
    let paths = items.filter(|(path, _)| path.contains(&format!("{{{parameter}}}")));
    let operations = paths.flat_map(|(_, item)| item.as_object().into_iter().flat_map(Map::values));
    let ids = operations.filter_map(|operation| operation["operationId"].as_str());
    let value = format!("$response.body#/{parameter}");
    let link = |id: &str| (id.to_owned(), json!({"operationId": id, "parameters": {parameter: value}}));
    let links: Map<String, Value> = ids.map(link).collect();
    if let Some(answer) = document.pointer_mut(answer) {
        answer["links"] = links.into();
    }
}

/// A path as a part of a JSON Pointer.
fn escaped(path: &str) -> String {
    path.replace('~', "~0").replace('/', "~1")
}

/// The request that webhooks get, with an example that is signed as it says.
fn webhook(facts: &Facts) -> Value {
    let hit_id = "019aa557-9f54-7d1e-8a5b-20c4a79e1f36";
    let webhook_id = "msg_019aa5579f547d1e8a5b20c4a79e1f36_0";
    let timestamp = 1_795_248_132;
    let target = "https://example.com/summer?ref=mail";
    let data = r#"{"campaign":"summer","channel":"mail"}"#;
    let body = hit_event_body("aB3xY9z", target, hit_id, "2026-11-21T08:02:12.052Z", data);
    // The secret is a constant; were it none, the example would have no signatures, and a test would say so.
    let (hex, standard) = WebhookSecret::parse(EXAMPLE_SECRET).map_or_else(
        |_| Default::default(),
        |secret| (sign_hex(&secret, &body), standard_signature(&[&secret], webhook_id, timestamp, &body)),
    );
    let header = |name: &str, description: &str, example: &str| {
        json!({
            "name": name, "in": "header", "required": true, "description": description,
            "schema": {"type": "string"}, "example": example,
        })
    };
    let example: Value = serde_json::from_slice(&body).unwrap_or_default();
    let secret_said = format!("A hit. Signed with the secret `{EXAMPLE_SECRET}`, and sent without white space.");
    json!({
        "tags": ["Webhooks"],
        "operationId": "hit",
        "summary": "The webhook: a link was followed",
        "description": guide::webhook(facts),
        "parameters": [
            header("X-Webhook-Signature", "`sha256=` and the hex of the HMAC-SHA256 of the raw body.", &hex),
            header("webhook-id", "Unique for each delivery, the same on every try.", webhook_id),
            header("webhook-timestamp", "Time of this try, in seconds since 1970.", &timestamp.to_string()),
            header("webhook-signature", "`v1,` and base64, as Standard Webhooks has it; two of them in a grace.", &standard),
            header("User-Agent", "The service and its version.", concat!("signpost/", env!("CARGO_PKG_VERSION"))),
        ],
        "requestBody": {
            "required": true,
            "description": "Exactly these six fields, in this order.",
            "content": {"application/json": {
                "schema": {"$ref": "#/components/schemas/HitEvent"},
                "examples": {"hit": {"summary": secret_said, "value": example}},
            }},
        },
        "responses": {
            "2XX": {"description": "The delivery succeeded. The body of the answer is not looked at."},
            "default": {"description": "The delivery failed, and is tried again."},
        },
    })
}
