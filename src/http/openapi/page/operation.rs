//! One operation: its purpose, parameters, answers, and how to call it.

use serde_json::Value;

use super::super::markdown::{anchor, code_block, escape, inline, to_html};
use super::schema::{Mark, answered_fields, examples, named_row, sent_fields};
use super::{fields, members, resolved, text};

pub struct Operation<'a> {
    document: &'a Value,
    method: &'a str,
    path: &'a str,
    described: &'a Value,
    /// Whether the service sends the request.
    is_webhook: bool,
}

impl<'a> Operation<'a> {
    pub fn new(document: &'a Value, method: &'a str, path: &'a str, described: &'a Value) -> Self {
        Self { document, method, path, described, is_webhook: false }
    }

    pub fn webhook(document: &'a Value, name: &'a str, described: &'a Value) -> Self {
        Self { document, method: "post", path: name, described, is_webhook: true }
    }

    fn id(&self) -> String {
        anchor(text(&self.described["operationId"]))
    }

    pub fn contents_entry(&self) -> String {
        format!(
            "<li><a href=\"#{}\"><span class=\"method {method}\">{}</span><span>{}</span></a></li>\n",
            self.id(),
            self.method.to_uppercase(),
            escape(text(&self.described["summary"])),
            method = escape(self.method),
        )
    }

    pub fn to_html(&self) -> String {
        let summary = escape(text(&self.described["summary"]));
        let mut html = format!("<section id=\"{}\">\n<h3>{summary}</h3>\n", self.id());
        if self.is_webhook {
            html += "<p class=\"endpoint\"><span class=\"method post\">POST</span> <span>to each webhook of the link</span></p>\n";
        } else {
            html += &format!(
                "<p class=\"endpoint\"><span class=\"method {}\">{}</span> <code class=\"path\">{}</code></p>\n",
                escape(self.method),
                self.method.to_uppercase(),
                escape(self.path),
            );
            html += &self.authentication();
        }
        html += &to_html(text(&self.described["description"]), 4);
        html += &self.parameters();
        html += &self.request_body();
        if !self.is_webhook {
            html += &self.curl();
        }
        html += &self.responses();
        html + "</section>\n"
    }

    fn authentication(&self) -> String {
        let Some(requirement) = self.described["security"][0].as_object() else {
            return "<p class=\"soft\">No key needed.</p>\n".into();
        };
        let scopes: Vec<&str> = requirement.values().flat_map(members).map(text).collect();
        match scopes.as_slice() {
            [] if self.path.contains("{key_id}") => {
                "<p class=\"soft\">Needs a key: with the scope <code>keys:manage</code>, or the key that the path names.</p>\n"
                    .into()
            }
            [] => "<p class=\"soft\">Needs a key, whatever its scopes.</p>\n".into(),
            scopes => format!("<p class=\"soft\">Needs a key with the scope <code>{}</code>.</p>\n", escape(&scopes.join(" "))),
        }
    }

    fn parameters(&self) -> String {
        let rows: String = members(&self.described["parameters"])
            .map(|parameter| {
                let name = text(&parameter["name"]);
                let description = text(&parameter["description"]);
                let row = named_row(
                    self.document,
                    name,
                    &parameter["schema"],
                    description,
                    if !self.is_webhook && parameter["required"] == true { Mark::Required } else { Mark::None },
                );
                let place = format!("<td class=\"type\">{}, ", escape(text(&parameter["in"])));
                let row = row.replacen("<td class=\"type\">", &place, 1);
                match parameter["example"].as_str().filter(|_| self.is_webhook) {
                    Some(example) => row.replacen(
                        "</td></tr>",
                        &format!("<p class=\"soft\"><code>{}</code></p></td></tr>", escape(example)),
                        1,
                    ),
                    None => row,
                }
            })
            .collect();
        if rows.is_empty() {
            return String::new();
        }
        let title = if self.is_webhook { "Headers" } else { "Parameters" };
        format!(
            "<h4>{title}</h4>\n<div class=\"table\"><table class=\"fields\">\n\
             <thead><tr><th>name</th><th>type</th><th>meaning</th></tr></thead>\n<tbody>{rows}</tbody>\n</table></div>\n"
        )
    }

    fn request_body(&self) -> String {
        let body = &self.described["requestBody"];
        let mut html = String::new();
        let media_types: Vec<&str> = fields(&body["content"]).map(|(media_type, _)| media_type.as_str()).collect();
        let media_types = media_types.join(" or ");
        // All media types have the same content.
        for (_, content) in fields(&body["content"]).take(1) {
            html += &format!(
                "<h4>Body</h4>\n<p>{} <span class=\"type\">{}</span></p>\n",
                inline(text(&body["description"])),
                escape(&media_types)
            );
            html += &if self.is_webhook {
                answered_fields(self.document, &content["schema"])
            } else {
                sent_fields(self.document, &content["schema"])
            };
            for (summary, value) in examples(content) {
                html += &format!("<p class=\"soft\">{}</p>\n", inline(summary));
                html += &code_block(&format!("{value:#}"), "json");
            }
        }
        html
    }

    /// The request as a curl command.
    fn curl(&self) -> String {
        let mut path = self.path.to_owned();
        for parameter in members(&self.described["parameters"]) {
            path = path.replace(&format!("{{{}}}", text(&parameter["name"])), text(&parameter["example"]));
        }
        let is_required_in_query = |parameter: &&Value| parameter["in"] == "query" && parameter["required"] == true;
        let query: Vec<String> = members(&self.described["parameters"])
            .filter(is_required_in_query)
            .map(|parameter| format!("{}={}", text(&parameter["name"]), text(&parameter["example"])))
            .collect();
        let url = format!("{}{path}", text(&self.document["servers"][0]["url"]));
        let body = fields(&self.described["requestBody"]["content"]).next();
        let mut command = String::from("curl -sS");
        // With a body, curl sends a POST by itself.
        if self.method != "get" && (self.method != "post" || body.is_none()) {
            command += &format!(" -X {}", self.method.to_uppercase());
        }
        // A shell may take `?` for a pattern.
        command += &if query.is_empty() { format!(" {url}") } else { format!(" '{url}?{}'", query.join("&")) };
        if self.described["security"].is_array() {
            command += " \\\n  -H \"X-API-Key: $SIGNPOST_API_KEY\"";
        }
        if let Some((media_type, content)) = body {
            let example = examples(content).first().map(|(_, value)| value.to_string().replace('\'', "'\\''"));
            command += &format!(" -H 'Content-Type: {media_type}' \\\n  -d '{}'", example.unwrap_or_default());
        } else if self.described["responses"]["200"]["content"].get("image/png").is_some() {
            let name = self.path.rsplit('/').next().unwrap_or_default();
            command += &format!(" -o {name}.png");
        } else if self.described["responses"].get("302").is_some() {
            command = command.replacen("-sS", "-sSi", 1);
        }
        format!("<h4>Call</h4>\n{}", code_block(&command, "sh"))
    }

    fn responses(&self) -> String {
        let mut html = String::from("<h4>Answers</h4>\n");
        let mut errors = String::new();
        for (status, response) in fields(&self.described["responses"]) {
            let response = resolved(self.document, response);
            let is_error = response["content"].get("application/problem+json").is_some();
            if is_error {
                errors += &error_rows(status, response);
            } else {
                html += &self.success(status, response);
            }
        }
        if !errors.is_empty() {
            html += &format!(
                "<details><summary>Errors</summary>\n<div class=\"table\"><table>\n\
                 <thead><tr><th>status</th><th>slug</th><th>detail, for example</th></tr></thead>\n\
                 <tbody>{errors}</tbody>\n</table></div>\n<p class=\"soft\">All are problem documents: see \
                 <a href=\"#errors\">Errors</a>.</p>\n</details>\n"
            );
        }
        html
    }

    fn success(&self, status: &str, response: &Value) -> String {
        let description = inline(text(&response["description"]));
        let mut html = format!("<p><span class=\"status\">{}</span> {description}</p>\n", escape(status));
        for (media_type, content) in fields(&response["content"]) {
            let table = answered_fields(self.document, &content["schema"]);
            html += &format!("<p class=\"type\">{}</p>\n{table}", escape(media_type));
            for (_, value) in examples(content) {
                html += &code_block(&format!("{value:#}"), "json");
            }
        }
        let rows: String = fields(&response["headers"])
            .map(|(name, header)| {
                let header = resolved(self.document, header);
                named_row(self.document, name, &header["schema"], text(&header["description"]), Mark::None)
            })
            .collect();
        if !rows.is_empty() {
            html += &format!(
                "<details><summary>Headers of {}</summary>\n<div class=\"table\"><table class=\"fields\">\n\
                 <thead><tr><th>header</th><th>type</th><th>meaning</th></tr></thead>\n<tbody>{rows}</tbody>\n</table></div>\n\
                 </details>\n",
                escape(status)
            );
        }
        html
    }
}

/// The problems of one status, as rows of a table.
fn error_rows(status: &str, response: &Value) -> String {
    let examples = fields(&response["content"]["application/problem+json"]["examples"]);
    let row = |(slug, example): (&String, &Value)| {
        let body = &example["value"];
        let mut detail = inline(text(&body["detail"]));
        let more: serde_json::Map<String, Value> = fields(body)
            .filter(|(name, _)| !["type", "title", "status", "detail"].contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !more.is_empty() {
            detail += &format!("<br><code>{}</code>", escape(&Value::Object(more).to_string()));
        }
        format!(
            "<tr><td><span class=\"status error\">{}</span></td><td><code>{}</code></td><td>{detail}</td></tr>\n",
            escape(status),
            escape(slug)
        )
    };
    examples.map(row).collect()
}
