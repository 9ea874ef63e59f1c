//! The `OpenAPI` document, generated from the endpoints' documentation.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{RefOr, path::Parameter};

use super::schemas::{HitEvent, ProblemDocument};
use super::{Facts, guide, headers, problems};
use crate::domain::bots::BotKind;
use crate::domain::signature::{WebhookSecret, sign_hex, standard_signature};
use crate::domain::webhook_event::hit_event_body;
use crate::http::endpoint::{Body, Docs, Endpoint, ResponseDoc, Shape, Tag, shape};
use crate::http::endpoints::ENDPOINTS;
use crate::http::merge_patch;

/// The secret that signs the example of a webhook request: the bytes 0 to 31.
const EXAMPLE_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Generates the document.
pub fn document(facts: &Facts) -> Value {
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Signpost",
            "description": guide::introduction(facts),
            "license": {"name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE")},
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": {},
        "components": {"schemas": schemas()},
        "tags": tags(),
        "servers": [{"url": facts.base_url}],
    });
    for &endpoint in ENDPOINTS {
        // `HEAD` is described once for all paths with `GET`.
        let method = endpoint.methods[0].as_str().to_lowercase();
        document["paths"][endpoint.path][method] = operation(endpoint);
    }
    flatten(&mut document);
    // By reference: openapi-generator 7 treats an inline webhook as an operation of the service, and generates
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
            "description": "The same key, for clients that support only this scheme. If both are sent, `X-API-Key` is used.",
        },
    });
    for &endpoint in ENDPOINTS {
        for answer in endpoint.docs.answers {
            if let Some(parameter) = answer.names {
                add_links(&mut document, endpoint, answer, parameter);
            }
        }
    }
    for response in document["components"]["responses"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        headers::add(response, "X-Request-Id");
    }
    document
}

/// The groups of endpoints, in the order in which they occur in the table.
fn tags() -> Value {
    let mut tags: Vec<&Tag> = Vec::new();
    for &endpoint in ENDPOINTS {
        if !tags.iter().any(|tag| tag.name == endpoint.docs.tag.name) {
            tags.push(endpoint.docs.tag);
        }
    }
    tags.into_iter().map(|tag| json!({"name": tag.name, "description": tag.description})).collect()
}

/// All schemas to which the document refers, by name.
fn schemas() -> Map<String, Value> {
    let mut found: Vec<(String, RefOr<Schema>)> = Vec::new();
    let shapes = ENDPOINTS.iter().flat_map(|endpoint| shapes(&endpoint.docs));
    for shape in shapes.chain([shape::<HitEvent>(), shape::<ProblemDocument>()]) {
        (shape.components)(&mut found);
    }
    let by_name: BTreeMap<String, Value> = found.into_iter().map(|(name, schema)| (name, as_json(&schema))).collect();
    by_name.into_iter().collect()
}

fn shapes(docs: &'static Docs) -> impl Iterator<Item = Shape> {
    let of_parameters = docs.parameters.iter().flat_map(|parameters| parameters.schemas).copied();
    let of_answers = docs.answers.iter().flat_map(|answer| answer.content).map(|content| content.shape);
    of_parameters.chain(docs.body.iter().map(|body| body.shape)).chain(of_answers)
}

/// Never fails: all maps here have string keys.
fn as_json(described: &impl serde::Serialize) -> Value {
    serde_json::to_value(described).unwrap_or_default()
}

fn operation(endpoint: &Endpoint) -> Value {
    let docs = &endpoint.docs;
    let mut operation = json!({
        "tags": [docs.tag.name],
        "summary": docs.summary,
        "description": docs.description,
        "operationId": docs.id,
    });
    let parameters: Vec<Parameter> = docs.parameters.iter().flat_map(|parameters| (parameters.described)()).collect();
    if !parameters.is_empty() {
        operation["parameters"] = as_json(&parameters);
    }
    if let Some(body) = &docs.body {
        let media_types = if endpoint.takes_patch() { &merge_patch::MEDIA_TYPES[..] } else { &["application/json"] };
        operation["requestBody"] = request_body(body, media_types);
    }
    for answer in docs.answers {
        let response = response(answer);
        operation["responses"][answer.status.to_string()] = response;
    }
    complete(&mut operation, endpoint);
    operation
}

fn request_body(body: &Body, media_types: &[&str]) -> Value {
    let mut content = json!({"schema": as_json(&(body.shape.schema)())});
    for example in body.examples {
        content["examples"][example.name] = json!({"summary": example.summary, "value": (example.value)()});
    }
    let contents: Map<String, Value> = media_types.iter().map(|name| ((*name).to_owned(), content.clone())).collect();
    let mut described = json!({"description": body.description, "content": contents});
    if body.required {
        described["required"] = true.into();
    }
    described
}

fn response(answer: &ResponseDoc) -> Value {
    let mut response = json!({"description": answer.description});
    answer.headers.iter().for_each(|name| headers::add(&mut response, name));
    for content in answer.content {
        let mut described = json!({"schema": as_json(&(content.shape.schema)())});
        if let Some(example) = content.example {
            described["example"] = example();
        }
        response["content"][content.media_type] = described;
    }
    response
}

/// Adds to an operation what follows from the endpoint's access, and what applies to all operations.
fn complete(operation: &mut Value, endpoint: &Endpoint) {
    if endpoint.rate_limit().is_some() {
        responses(operation).for_each(|response| headers::add(response, "Cache-Control"));
    }
    problems::add_to(operation, endpoint);
    if endpoint.rate_limit().is_some() {
        let scope = endpoint.access().filter(|access| !access.or_self).map(|access| access.scope.name());
        let scopes = json!(scope.as_slice());
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

/// Merges the parts of `allOf` into one object. That is easier to read, and openapi-generator 7 loses which fields of
/// a part may be `null`.
fn flatten(document: &mut Value) {
    let schemas = document["components"]["schemas"].clone();
    for schema in document["components"]["schemas"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        let Some(parts) = schema.as_object_mut().and_then(|schema| schema.remove("allOf")) else { continue };
        let (mut properties, mut required) = (Map::new(), Vec::new());
        let mut parts: Vec<&Value> = parts.as_array().into_iter().flatten().collect();
        // Parts with a name are first. The own fields, which utoipa puts last, stand before unnamed parts.
        let own = parts.pop();
        let named = parts.iter().filter(|part| part["$ref"].is_string()).count();
        parts.splice(named..named, own);
        for part in parts {
            let name = part["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
            let part = name.map_or(part, |name| &schemas[name]);
            properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
            required.extend(part["required"].as_array().cloned().unwrap_or_default());
            if part["additionalProperties"] == false {
                schema["additionalProperties"] = false.into();
            }
        }
        schema["type"] = "object".into();
        schema["properties"] = properties.into();
        if !required.is_empty() {
            schema["required"] = required.into();
        }
    }
}

/// Adds links from an answer to the operations that take its id.
fn add_links(document: &mut Value, endpoint: &Endpoint, answer: &ResponseDoc, parameter: &str) {
    let placeholder = format!("{{{parameter}}}");
    let takers = ENDPOINTS.iter().filter(|endpoint| endpoint.path.contains(&placeholder));
    let value = format!("$response.body#/{parameter}");
    let link = |id: &str| (id.to_owned(), json!({"operationId": id, "parameters": {parameter: value}}));
    let links: Map<String, Value> = takers.map(|endpoint| link(endpoint.docs.id)).collect();
    let method = endpoint.methods[0].as_str().to_lowercase();
    document["paths"][endpoint.path][method]["responses"][answer.status.to_string()]["links"] = links.into();
}

/// The request to webhooks, with an example that is signed as described.
fn webhook(facts: &Facts) -> Value {
    let hit_id = "019aa557-9f54-7d1e-8a5b-20c4a79e1f36";
    let webhook_id = "msg_019aa5579f547d1e8a5b20c4a79e1f36_0";
    let timestamp = 1_795_248_132;
    let target = "https://example.com/summer?ref=mail";
    let data = r#"{"campaign":"summer","channel":"mail"}"#;
    let body = hit_event_body("aB3xY9z", target, hit_id, "2026-11-21T08:02:12.052Z", data);
    // The secret is a valid constant. Otherwise the example would have no signatures, which a test detects.
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
    let secret_said = format!("A hit, signed with the secret `{EXAMPLE_SECRET}`, and sent without white space.");
    json!({
        "tags": ["Webhooks"],
        "operationId": "hit",
        "summary": "The webhook: a link was followed",
        "description": guide::webhook(facts),
        "parameters": [
            header("X-Webhook-Signature", "`sha256=` and the hex of the HMAC-SHA256 of the raw body.", &hex),
            header("webhook-id", "Unique for each delivery, the same for all attempts.", webhook_id),
            header("webhook-timestamp", "Time of this attempt, in seconds since 1970.", &timestamp.to_string()),
            header("webhook-signature", "`v1,` and base64, as in Standard Webhooks; two signatures during a grace period.", &standard),
            json!({
                "name": "Signpost-Test", "in": "header", "required": false,
                "description": "`true` if the request is a test; else absent.",
                "schema": {"type": "string", "enum": ["true"]},
            }),
            json!({
                "name": "Signpost-Bot", "in": "header", "required": false,
                "description": "What made the hit, if no person did; else absent.",
                "schema": {"type": "string", "enum": BotKind::ALL.map(BotKind::label)},
            }),
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
            "2XX": {"description": "The delivery succeeded. The body of the answer is ignored."},
            "default": {"description": "The attempt failed, and is retried."},
        },
    })
}
