//! The effective configuration, as a file that results in the same configuration.

use std::fmt::Write;

use super::{
    layers::{LayeredSettings, SettingValue, variable_of},
    redact,
    secrets::Secrets,
};

/// Writes all settings as TOML, each with its origin in a comment. Secrets are comments that say only whether they
/// are set, so the text can be shared and used as a configuration file.
pub(super) fn render(settings: &LayeredSettings, secrets: &Secrets) -> String {
    let mut text = String::new();
    for (name, is_set) in secrets.presence() {
        let state = if is_set { "set (masked)" } else { "not set" };
        let variable = variable_of(name);
        push_line(&mut text, format_args!("# {name} = \"{state}\"  # {variable}"));
    }
    let mut section = "";
    for setting in settings.iter() {
        let (own, key) = setting.name().rsplit_once('.').unwrap_or(("", setting.name()));
        if own != section {
            push_line(&mut text, format_args!("\n[{own}]"));
            section = own;
        }
        // Visitors see these, and may be sent to an address with a query.
        let show = if own == "fallbacks" { redact::public_address } else { redact::in_force };
        let value = literal(setting.value(), show);
        push_line(&mut text, format_args!("{key} = {value}  # {}", setting.origin()));
    }
    text
}

fn push_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a String never fails.
    let _ = writeln!(text, "{line}");
}

fn literal(value: &SettingValue, show: fn(&str) -> String) -> String {
    match value {
        SettingValue::Boolean(value) => value.to_string(),
        SettingValue::Integer(value) => value.to_string(),
        SettingValue::Fraction(value) => value.clone(),
        SettingValue::Text(value) | SettingValue::Untyped(value) => quoted(&show(value)),
        SettingValue::List(items) => {
            let items: Vec<String> = items.iter().map(|item| quoted(&show(item))).collect();
            format!("[{}]", items.join(", "))
        }
        // Reading refuses such a value, so no loaded configuration has one.
        SettingValue::Unusable(name) => quoted(name),
    }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use toml::de::DeValue;

    use super::quoted;

    #[test]
    fn a_quoted_string_reads_back_as_itself() {
        for text in ["", "plain", "a \"b\" \\ c", "tab\tline\nbell\u{7}del\u{7f}", "ü→🦀"] {
            let literal = quoted(text);
            let read = DeValue::parse(&literal).expect("a TOML string");
            assert_eq!(read.get_ref().as_str(), Some(text));
        }
    }
}
