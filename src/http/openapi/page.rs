//! The document as an HTML page, without scripts and external resources.

mod operation;
mod schema;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value};

use super::markdown::{anchor, escape, headings, inline, to_html};
use operation::Operation;

const STYLE: &str = include_str!("style.css");

/// A page and its content security policy.
pub struct ReferencePage {
    pub html: String,
    pub content_security_policy: String,
}

/// The SHA-256 of a text as base64.
pub fn base64_sha256(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

/// Renders a document as a page.
pub fn render(document: &Value) -> ReferencePage {
    let title = text(&document["info"]["title"]);
    let version = text(&document["info"]["version"]);
    let introduction = text(&document["info"]["description"]);
    let groups = groups(document);
    let webhook = Operation::webhook(document, "hit", &resolved(document, &document["webhooks"]["hit"])["post"]);

    let mut contents = String::from("<ul>\n");
    for heading in headings(introduction) {
        contents += &format!("<li><a href=\"#{}\">{}</a></li>\n", anchor(heading), escape(heading));
    }
    contents += "</ul>\n";
    for (tag, operations) in &groups {
        let items: String = operations.iter().map(Operation::contents_entry).collect();
        contents += &format!("<p class=\"group\">{}</p>\n<ul>\n{items}</ul>\n", escape(text(&tag["name"])));
    }
    contents += &format!("<p class=\"group\">Webhook</p>\n<ul>\n{}</ul>\n", webhook.contents_entry());

    let mut body = to_html(introduction, 2);
    for (tag, operations) in &groups {
        let name = text(&tag["name"]);
        let about = inline(text(&tag["description"]));
        body += &format!("<h2 id=\"{}\">{}</h2>\n<p>{about}</p>\n", anchor(&format!("tag {name}")), escape(name));
        body.extend(operations.iter().map(Operation::to_html));
    }
    body += "<h2 id=\"the-webhook\">The webhook</h2>\n";
    body += &webhook.to_html();

    let (title, version) = (escape(title), escape(version));
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} API reference</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#content\">Skip to content</a>\n<div class=\"layout\">\n\
         <nav class=\"wide\" aria-label=\"Contents\">\n{contents}</nav>\n\
         <main id=\"content\">\n<h1>{title} API reference</h1>\n\
         <p class=\"version\">Version {version} · <a href=\"openapi.json\">OpenAPI document</a></p>\n\
         <nav class=\"narrow\" aria-label=\"Contents\">\n<details><summary>Contents</summary>\n{contents}</details>\n</nav>\n\
         {body}</main>\n</div>\n</body>\n</html>\n"
    );
    let style = STANDARD.encode(digest(&SHA256, STYLE.as_bytes()));
    let content_security_policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    ReferencePage { html, content_security_policy }
}

/// The tags, each with its operations, in the order of the document.
fn groups(document: &Value) -> Vec<(&Value, Vec<Operation<'_>>)> {
    let mut groups = Vec::new();
    for tag in members(&document["tags"]) {
        let mut operations = Vec::new();
        for (path, item) in fields(&document["paths"]) {
            for (method, operation) in fields(item) {
                if operation["tags"][0] == tag["name"] {
                    operations.push(Operation::new(document, method, path, operation));
                }
            }
        }
        groups.push((tag, operations));
    }
    groups
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn members(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

/// The value, or the target if it is a reference.
fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let pointer = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    pointer.and_then(|pointer| document.pointer(pointer)).unwrap_or(value)
}
