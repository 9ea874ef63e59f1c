//! Schemas as tables of fields.

use serde_json::{Map, Value};

use super::super::markdown::{escape, inline};
use super::{fields, members, resolved, text};

/// A field of an object, by its full name: `usage.links_created.current`, `daily[].count`.
struct Field<'a> {
    name: String,
    schema: &'a Value,
    description: &'a str,
    required: bool,
}

/// The mark after the name of a field or parameter.
#[derive(Clone, Copy)]
pub enum Mark {
    None,
    Required,
    NotAlways,
}

impl Mark {
    fn html(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Required => " <span class=\"required\">required</span>",
            Self::NotAlways => " <span class=\"soft\">not always</span>",
        }
    }
}

/// The fields of a request's schema as a table; empty if there are none.
pub fn sent_fields(document: &Value, schema: &Value) -> String {
    field_table(document, schema, |required| if required { Mark::Required } else { Mark::None })
}

/// The fields of an answer's schema as a table; empty if there are none.
pub fn answered_fields(document: &Value, schema: &Value) -> String {
    field_table(document, schema, |required| if required { Mark::None } else { Mark::NotAlways })
}

fn field_table(document: &Value, schema: &Value, mark: impl Fn(bool) -> Mark) -> String {
    let mut found = Vec::new();
    collect(document, schema, "", &mut found);
    if found.is_empty() {
        return String::new();
    }
    let rows: String = found
        .iter()
        .map(|field| named_row(document, &field.name, field.schema, field.description, mark(field.required)))
        .collect();
    format!(
        "<div class=\"table\"><table class=\"fields\">\n<thead><tr><th>field</th><th>type</th><th>meaning</th></tr></thead>\n\
         <tbody>{rows}</tbody>\n</table></div>\n"
    )
}

/// A row in a table of fields or parameters.
pub fn named_row(document: &Value, name: &str, schema: &Value, description: &str, mark: Mark) -> String {
    let paragraphs: String = description.split("\n\n").map(|part| format!("<p>{}</p>", inline(part))).collect();
    let facts = facts(document, schema);
    let facts = if facts.is_empty() { String::new() } else { format!("<p class=\"soft\">{}</p>", inline(&facts)) };
    format!(
        "<tr><td><code>{}</code>{}</td><td class=\"type\">{}</td><td>{paragraphs}{facts}</td></tr>\n",
        escape(name),
        mark.html(),
        escape(&type_name(document, schema)),
    )
}

fn collect<'a>(document: &'a Value, schema: &'a Value, prefix: &str, found: &mut Vec<Field<'a>>) {
    let schema = substance(document, schema);
    for part in members(&schema["allOf"]) {
        collect(document, part, prefix, found);
    }
    for (name, property) in fields(&schema["properties"]) {
        let name = format!("{prefix}{name}");
        let own = substance(document, property);
        let mut described = [property].into_iter().chain(members(&property["oneOf"])).chain([own]);
        let description = described.find_map(|schema| schema["description"].as_str());
        let required = members(&schema["required"]).any(|required| text(required) == &name[prefix.len()..]);
        let description = description.unwrap_or_default();
        found.push(Field { name: name.clone(), schema: property, description, required });
        collect(document, own, &format!("{name}."), found);
        collect(document, &own["items"], &format!("{name}[]."), found);
    }
}

/// The schema without references and without the alternative `null`.
fn substance<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let schema = resolved(document, schema);
    match members(&schema["oneOf"]).find(|choice| text(&choice["type"]) != "null") {
        Some(choice) => substance(document, choice),
        None => schema,
    }
}

/// `string`, `integer or null`, `array of string`.
fn type_name(document: &Value, schema: &Value) -> String {
    let own = substance(document, schema);
    let mut names: Vec<String> = match &own["type"] {
        Value::String(name) => vec![name.clone()],
        Value::Array(names) => names.iter().map(|name| text(name).to_owned()).collect(),
        _ if own["allOf"].is_array() || own["properties"].is_object() => vec!["object".into()],
        _ => vec!["any".into()],
    };
    if members(&resolved(document, schema)["oneOf"]).any(|choice| text(&choice["type"]) == "null") {
        names.push("null".into());
    }
    for name in &mut names {
        if name == "array" {
            *name = format!("array of {}", type_name(document, &own["items"]));
        } else if let Some(format) =
            own["format"].as_str().filter(|format| !format.starts_with("int") && name == "string")
        {
            *name = format!("string ({format})");
        }
    }
    names.join(" or ")
}

/// Values, bounds and defaults, as text.
fn facts(document: &Value, schema: &Value) -> String {
    let own = substance(document, schema);
    let item = substance(document, &own["items"]);
    let mut facts = Vec::new();
    for choices in [own, item] {
        let values: Vec<String> = members(&choices["enum"]).map(|value| format!("`{}`", text(value))).collect();
        if !values.is_empty() {
            facts.push(format!("One of {}.", values.join(", ")));
        }
    }
    let bound = |name: &str| own[name].as_u64();
    match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) => facts.push(format!("{least} to {most}.")),
        (Some(least), None) if least > 0 => facts.push(format!("At least {least}.")),
        _ => {}
    }
    let default = [schema, own].map(|schema| &schema["default"]).into_iter().find(|default| !default.is_null());
    if let Some(default) = default {
        facts.push(format!("Default: `{}`.", default.as_str().map_or_else(|| default.to_string(), str::to_owned)));
    }
    facts.join(" ")
}

/// The example of a body, or its named examples, which are objects with a `value`.
pub fn examples(content: &Value) -> Vec<(&str, &Value)> {
    let single = content.get("example").map(|example| ("", example));
    let named = content["examples"].as_object().into_iter().flat_map(Map::values);
    single.into_iter().chain(named.map(|example| (text(&example["summary"]), &example["value"]))).collect()
}
