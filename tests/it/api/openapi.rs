//! The API reference: it says what the routes are, and nothing else.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Map, Value, json};
use signpost::domain::signature::{WebhookSecret, sign_hex};
use signpost::domain::webhook_event::hit_event_body;
use signpost::http::problem::ProblemKind;
use signpost::http::routes;

use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};

const PROBLEM_JSON: &str = "application/problem+json";

async fn document() -> Value {
    let server = Server::start();
    server.anonymous().get("/openapi.json").await.expect(200).json()
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Every operation of the document, with its method and path.
fn operations(document: &Value) -> Vec<(String, &Value)> {
    let paths = fields(&document["paths"]);
    let named = paths.flat_map(|(path, item)| fields(item).map(move |(method, of)| (format!("{method} {path}"), of)));
    named.collect()
}

fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(reference) => document.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
        None => value,
    }
}

fn webhook(document: &Value) -> &Value {
    &resolved(document, &document["webhooks"]["hit"])["post"]
}

/// Everything in a value, depth first.
fn walk<'a>(value: &'a Value, visit: &mut dyn FnMut(&'a Value)) {
    visit(value);
    fields(value).for_each(|(_, child)| walk(child, visit));
    items(value).for_each(|child| walk(child, visit));
}

#[apply(on_each_store)]
async fn the_document_describes_the_routes_and_only_them() {
    let document = document().await;
    let described: BTreeSet<String> = operations(&document).into_iter().map(|(name, _)| name).collect();
    let mut served = BTreeSet::new();
    for path in routes::table() {
        for operation in path.operations {
            let methods: Vec<&str> = operation.methods.iter().map(actix_web::http::Method::as_str).collect();
            // `HEAD` is described once for all: it is there where `GET` is.
            assert_eq!(methods.contains(&"HEAD"), methods.contains(&"GET"), "{}", path.pattern);
            let others = methods.iter().filter(|method| **method != "HEAD");
            served.extend(others.map(|method| format!("{} {}", method.to_lowercase(), path.pattern)));
            // Whether a key is asked for, and with which scope.
            let described = &document["paths"][path.pattern][methods[0].to_lowercase()]["security"];
            match operation.access() {
                None if operation.rate_limit().is_some() => {
                    assert_eq!(described, &json!([{"ApiKey": []}, {"Bearer": []}]), "{}", path.pattern);
                }
                None => assert!(described.is_null(), "{}", path.pattern),
                Some(access) if access.or_self => assert_eq!(described[0]["ApiKey"], json!([]), "{}", path.pattern),
                Some(access) => {
                    assert_eq!(described[0]["ApiKey"], json!([access.scope.name()]), "{}", path.pattern);
                    assert_eq!(described[1]["Bearer"], json!([access.scope.name()]), "{}", path.pattern);
                }
            }
        }
    }
    assert_eq!(described, served);
}

#[apply(on_each_store)]
async fn every_operation_is_described_whole() {
    let document = document().await;
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (name, operation) in operations(&document) {
        for member in ["operationId", "summary", "description"] {
            assert!(operation[member].as_str().is_some_and(|text| !text.is_empty()), "{name}: {member}");
        }
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{name}: its operationId is taken");
        let tag = &operation["tags"][0];
        assert!(items(&document["tags"]).any(|known| known["name"] == *tag), "{name}: {tag}");
        for (parameter, described) in items(&operation["parameters"]).map(|parameter| (&parameter["name"], parameter)) {
            assert!(described["description"].is_string() && described["schema"].is_object(), "{name}: {parameter}");
        }
        // What stands in the path is a parameter.
        for part in name.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            assert!(items(&operation["parameters"]).any(|parameter| parameter["name"] == part), "{name}: {part}");
        }
        let mut errors = 0;
        for (status, response) in fields(&operation["responses"]) {
            assert!(response["description"].as_str().is_some_and(|text| !text.is_empty()), "{name} {status}");
            assert!(response["headers"]["X-Request-Id"].is_object(), "{name} {status}");
            if status.as_str() >= "400" {
                let problem = &response["content"][PROBLEM_JSON];
                assert_eq!(problem["schema"]["$ref"], "#/components/schemas/Problem", "{name} {status}");
                assert!(fields(&problem["examples"]).count() > 0, "{name} {status}");
                for (slug, example) in fields(&problem["examples"]) {
                    let kind = ProblemKind::ALL.into_iter().find(|kind| kind.slug() == slug).unwrap();
                    assert_eq!(kind.status().as_str(), status, "{name}");
                    assert_eq!(example["value"]["type"], format!("urn:problem-type:signpost:{slug}"), "{name}");
                    assert_eq!(example["value"]["errors"].is_array(), slug == "validation", "{name}");
                }
                errors += 1;
            } else {
                assert!(fields(&response["content"]).all(|(media, _)| media != PROBLEM_JSON), "{name} {status}");
            }
            let has = |header: &str| response["headers"][header].is_object();
            let in_progress = &response["content"][PROBLEM_JSON]["examples"]["idempotency-in-progress"];
            let is_for_later = ["429", "503"].contains(&status.as_str()) || in_progress.is_object();
            assert_eq!(has("Retry-After"), is_for_later, "{name} {status}");
            assert_eq!(has("WWW-Authenticate"), status == "401", "{name} {status}");
            assert!(operation["security"].is_null() || has("Cache-Control"), "{name} {status}");
        }
        assert!(errors > 0, "{name} has no error answer");
    }
    walk(&document["components"]["schemas"], &mut |schema| {
        for (name, property) in fields(&schema["properties"]) {
            let has_text = |schema: &Value| schema["description"].is_string();
            let described = has_text(property) || items(&property["oneOf"]).any(has_text);
            assert!(described, "{name} has no description in {schema}");
        }
    });
    let (text, mut said) = (document.to_string(), ProblemKind::ALL.into_iter());
    assert!(said.all(|kind| text.contains(&format!("`{}`", kind.slug()))), "every slug is in the table");
}

#[apply(on_each_store)]
async fn every_reference_leads_somewhere_and_every_shared_schema_is_used() {
    let document = document().await;
    let mut referred = BTreeSet::new();
    walk(&document, &mut |value| {
        if let Some(reference) = value.get("$ref") {
            let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
            referred.insert(pointer.to_owned());
        }
    });
    let operations = operations(&document);
    walk(&document, &mut |value| {
        // Other objects may have a field of this name.
        let is_response = value["content"].is_object();
        for (name, link) in fields(&value["links"]).filter(|_| is_response) {
            let known = operations.iter().any(|(_, operation)| operation["operationId"] == link["operationId"]);
            assert!(known, "{name} leads nowhere");
        }
    });
    for (name, _) in fields(&document["components"]["schemas"]) {
        assert!(referred.contains(&format!("/components/schemas/{name}")), "{name} is of no use");
    }
}

#[apply(on_each_store)]
async fn examples_are_what_their_schemas_say() {
    let document = document().await;
    let mut checked = 0;
    let mut check = |place: &str, schema: &Value, example: &Value| {
        let mut schema = schema.clone();
        schema["components"] = document["components"].clone();
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        let faults: Vec<String> = validator.iter_errors(example).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{place}: {faults:?} in {example}");
        checked += 1;
    };
    let mut operations = operations(&document);
    operations.push(("webhook".into(), webhook(&document)));
    for (name, operation) in operations {
        let mut contents: Vec<&Value> =
            fields(&operation["requestBody"]["content"]).map(|(_, content)| content).collect();
        for (_, response) in fields(&operation["responses"]) {
            contents.extend(fields(&response["content"]).map(|(_, content)| content));
            for (header, described) in fields(&response["headers"]) {
                let schema = &resolved(&document, described)["schema"];
                items(&schema["examples"]).for_each(|example| check(header, schema, example));
            }
        }
        for content in contents {
            let single = content.get("example").into_iter();
            let examples: Vec<_> = single.chain(fields(&content["examples"]).map(|(_, of)| &of["value"])).collect();
            let is_json = content["schema"]["$ref"].is_string() || content["schema"]["oneOf"].is_array();
            assert!(!is_json || !examples.is_empty(), "{name} has a body without an example");
            for example in examples {
                check(&name, &content["schema"], example);
            }
        }
        for parameter in items(&operation["parameters"]) {
            let examples = [&parameter["example"], &parameter["schema"]["default"]];
            let given = examples.into_iter().filter(|example| !example.is_null());
            given.for_each(|example| check(&name, &parameter["schema"], example));
        }
    }
    assert!(checked > 100, "{checked}");
}

#[apply(on_each_store)]
async fn examples_of_bodies_are_taken_by_the_service() {
    let server = Server::start();
    let root = server.root();
    let document = root.get("/openapi.json").await.expect(200).json();
    let examples_of = |path: &str, method: &str| {
        let content = &document["paths"][path][method]["requestBody"]["content"]["application/json"];
        fields(&content["examples"]).map(|(_, example)| example["value"].clone()).collect::<Vec<_>>()
    };
    let examples = |path: &str| examples_of(path, "post");
    for body in examples("/shorten") {
        root.post("/shorten", body).await.expect(200);
    }
    let link = root.any_link().await;
    for (path, method) in [
        ("/links/{short_id}", Method::PATCH),
        ("/links/{short_id}", Method::PUT),
        ("/links/{short_id}/block", Method::POST),
    ] {
        for body in examples_of(path, &method.as_str().to_lowercase()) {
            let path = path.replace("{short_id}", &link);
            root.send(method.clone(), &path, &[], Some(body.to_string().into())).await.expect(200);
        }
    }
    for body in examples("/api-keys") {
        root.post("/api-keys", body).await.expect(201);
    }
    let key = root.new_key(json!({"name": "rotated"})).await;
    for body in examples("/api-keys/{key_id}/rotate") {
        root.post(&format!("/api-keys/{}/rotate", key["key_id"].as_str().unwrap()), body).await.expect(200);
    }
    for body in examples_of("/api-keys/{key_id}", "patch") {
        let path = format!("/api-keys/{}", key["key_id"].as_str().unwrap());
        root.send(Method::PATCH, &path, &[], Some(body.to_string().into())).await.expect(200);
    }
}

#[apply(on_each_store)]
async fn the_example_of_a_webhook_is_signed_as_the_text_says() {
    let document = document().await;
    let webhook = webhook(&document);
    let example = &webhook["requestBody"]["content"]["application/json"]["examples"]["hit"];
    let secret = example["summary"].as_str().unwrap().split('`').nth(1).unwrap();
    let body = example["value"].as_object().unwrap();
    let text = |name: &str| body[name].as_str().unwrap();
    let names: Vec<&String> = body.keys().collect();
    assert_eq!(names, ["event", "short_id", "redirect_url", "hit_id", "hit_at", "data"]);
    let sent = hit_event_body(
        text("short_id"),
        text("redirect_url"),
        text("hit_id"),
        text("hit_at"),
        &body["data"].to_string(),
    );
    let signature = sign_hex(&WebhookSecret::parse(secret).unwrap(), &sent);
    let header =
        |name: &str| items(&webhook["parameters"]).find(|header| header["name"] == name).unwrap()["example"].clone();
    assert_eq!(header("X-Webhook-Signature"), signature);
    let timestamp = header("webhook-timestamp").as_str().unwrap().parse().unwrap();
    let reference = standardwebhooks::Webhook::new(secret).unwrap();
    let standard = reference.sign(header("webhook-id").as_str().unwrap(), timestamp, &sent).unwrap();
    assert_eq!(header("webhook-signature"), standard);
}

#[apply(on_each_store)]
async fn numbers_in_the_reference_are_those_of_the_settings() {
    let server = Server::builder()
        .set("SIGNPOST_TIERS__FREE__SHORTEN_PER_MINUTE", "7")
        .set("SIGNPOST_TIERS__PRO__SHORTEN_PER_MINUTE", "0")
        .set("SIGNPOST_TIERS__PRO__LINKS_PER_MONTH", "12345")
        .set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "3s,2m")
        .set("SIGNPOST_HTTP__BASE_URL", "https://sign.example/at")
        .start();
    let answer = server.anonymous().get("/openapi.json").await.expect(200);
    let document = answer.json();
    let introduction = document["info"]["description"].as_str().unwrap();
    assert!(introduction.contains("| `POST /shorten` | 7 | none | key |"), "{introduction}");
    assert!(introduction.contains("| links created | 100 | 12,345 |"), "{introduction}");
    let said = webhook(&document)["description"].as_str().unwrap();
    assert!(
        said.contains("3 attempts: at once, 3 s after the first failure, 2 min after the second failure"),
        "{said}"
    );
    assert_eq!(document["servers"], json!([{"url": "https://sign.example/at"}]));
}

#[apply(on_each_store)]
async fn the_reference_is_one_page_that_loads_nothing_and_runs_nothing() {
    let server = Server::start();
    let client = server.anonymous();
    let answer = client.get("/docs?fbclid=x").await.expect(200);
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    let policy = answer.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    let html = answer.text();
    for forbidden in
        ["<script", "javascript:", "src=", "@import", "url(", " style=", " onclick", "<link rel=\"stylesheet\""]
    {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    let document = client.get("/openapi.json").await.expect(200).json();
    for (name, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap().to_lowercase();
        assert!(html.contains(&format!("<section id=\"{id}\">")), "{name}");
        assert!(html.contains(&format!("<a href=\"#{id}\">")), "{name} is not in the contents");
    }
    // Every link inside the page has its target, and every name is given once.
    for link in html.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert_eq!(html.matches(&format!(" id=\"{link}\"")).count(), 1, "#{link}");
    }
}

#[apply(on_each_store)]
async fn both_forms_are_answered_304_to_who_has_them() {
    let server = Server::start();
    let client = server.anonymous();
    for path in ["/openapi.json", "/docs"] {
        let first = client.get(path).await.expect(200);
        let etag = first.header("etag").to_owned();
        let again = client.get_with(path, &[("If-None-Match", &etag)]).await.expect(304);
        assert!(again.body.is_empty() && again.header("etag") == etag, "{path}");
        client.get_with(path, &[("If-None-Match", "\"other\"")]).await.expect(200);
        let head = client.send(Method::HEAD, path, &[], None).await.expect(200);
        assert_eq!(head.header("etag"), etag);
    }
    client.get("/openapi.json?page=2").await.expect(422).problem("validation");
}

#[tokio::test]
async fn the_reference_says_which_colours_are_refused_where_addresses_are_kept_and_how_a_replay_is_told() {
    let document = document().await;
    let parameters = &document["paths"]["/{short_id}/qr"]["get"]["parameters"];
    let light =
        items(parameters).map(|parameter| resolved(&document, parameter)).find(|p| p["name"] == "light").unwrap();
    let light = light["description"].as_str().unwrap();
    assert!(["422", "25 %", "0.587 green"].iter().all(|said| light.contains(said)), "{light}");
    let redirect = document["paths"]["/{short_id}"]["get"]["description"].as_str().unwrap();
    assert!(
        redirect.contains("stored only in the hit journal") && redirect.contains("all links of a node"),
        "{redirect}"
    );
    let receiving = webhook(&document)["description"].as_str().unwrap();
    assert_eq!(receiving.matches("def is_genuine").count(), 1);
    assert!(receiving.contains("abs(time.time() - int(sent)) <= 300"), "{receiving}");
}
