//! Changes of a link's data by JSON Merge Patch (RFC 7396).
//!
//! It works on the text, because members keep their place, and numbers their digits.

use std::collections::HashMap;

use super::data::compacted;
use super::{DataTooLarge, LinkData};

impl LinkData {
    /// The data after a patch: the text of a JSON object that a parser has accepted. Members keep their place, and new ones
    /// are last.
    ///
    /// # Errors
    /// If the result is too large.
    pub fn merged_with(&self, patch: &str) -> Result<Self, DataTooLarge> {
        let mut merged = String::new();
        write_merged(&mut merged, Some(self.as_json()), &compacted(patch));
        Self::from_json_object(&merged)
    }
}

/// Appends `target` after `patch`. Both are compact.
fn write_merged(merged: &mut String, target: Option<&str>, patch: &str) {
    if !patch.starts_with('{') {
        merged.push_str(patch);
        return;
    }
    let mut patches = Members::of(patch);
    let target = Members::of(target.unwrap_or_default());
    merged.push('{');
    let begin = merged.len();
    for member in target.list {
        match patches.take(&member.name()) {
            Some("null") => {}
            Some(patch) => write_member(merged, begin, member, Some(patch)),
            None => write_member(merged, begin, member, None),
        }
    }
    for Member { key, value } in patches.list {
        if value != "null" {
            write_member(merged, begin, Member { key, value: "null" }, Some(value));
        }
    }
    merged.push('}');
}

fn write_member(merged: &mut String, begin: usize, member: Member<'_>, patch: Option<&str>) {
    if merged.len() > begin {
        merged.push(',');
    }
    merged.push_str(member.key);
    merged.push(':');
    match patch {
        Some(patch) => write_merged(merged, Some(member.value), patch),
        None => merged.push_str(member.value),
    }
}

/// A member of an object, as text.
#[derive(Clone, Copy)]
struct Member<'a> {
    /// With its quotes and escapes.
    key: &'a str,
    value: &'a str,
}

impl Member<'_> {
    /// The name without escapes. One that can't be decoded is compared as it is written.
    fn name(&self) -> String {
        serde_json::from_str(self.key).unwrap_or_else(|_| self.key.to_owned())
    }
}

/// The members of an object by name. Of members with the same name, the first has the place and the last the value.
struct Members<'a> {
    list: Vec<Member<'a>>,
    places: HashMap<String, usize>,
}

impl<'a> Members<'a> {
    /// Those of compact, valid JSON; none if it is not an object.
    fn of(json: &'a str) -> Self {
        let mut members = Self { list: Vec::new(), places: HashMap::new() };
        let mut rest = json.strip_prefix('{').and_then(|json| json.strip_suffix('}')).unwrap_or_default();
        while !rest.is_empty() {
            let (key, behind) = split(rest, b':');
            let (value, next) = split(behind, b',');
            members.add(Member { key, value });
            rest = next;
        }
        members
    }

    fn add(&mut self, member: Member<'a>) {
        let place = *self.places.entry(member.name()).or_insert(self.list.len());
        match self.list.get_mut(place) {
            Some(known) => known.value = member.value,
            None => self.list.push(member),
        }
    }

    /// The value of a member. What remains of it does nothing in a patch.
    fn take(&mut self, name: &str) -> Option<&'a str> {
        let member = &mut self.list[*self.places.get(name)?];
        Some(std::mem::replace(&mut member.value, "null"))
    }
}

/// The text before the first separator outside of strings and brackets, and the text behind it.
fn split(json: &str, separator: u8) -> (&str, &str) {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in json.bytes().enumerate() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ if byte == separator && depth == 0 => return (&json[..at], &json[at + 1..]),
            _ => {}
        }
    }
    (json, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(target: &str, patch: &str) -> String {
        let data = LinkData::from_json_object(target).unwrap();
        data.merged_with(patch).unwrap().as_json().to_owned()
    }

    /// RFC 7396, appendix A, as far as target and patch are objects.
    #[test]
    fn the_examples_of_the_rfc_have_their_results() {
        for (target, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r"{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            (r"{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(merged(target, patch), result, "{target} {patch}");
        }
        // Section 3, without its white space.
        let target = r#"{"title":"Goodbye!","author":{"givenName":"John","familyName":"Doe"},"tags":["example","sample"],
            "content":"This will be unchanged"}"#;
        let patch = r#"{ "title": "Hello!", "phoneNumber": "+01-123-456-7890", "author": { "familyName": null },
            "tags": [ "example" ] }"#;
        let result = r#"{"title":"Hello!","author":{"givenName":"John"},"tags":["example"],"content":"This will be unchanged","phoneNumber":"+01-123-456-7890"}"#;
        assert_eq!(merged(target, patch), result);
    }

    #[test]
    fn members_keep_their_place_and_numbers_their_text() {
        assert_eq!(merged(r#"{"b":1.00,"a":1e5}"#, r#"{ "c": 2.50, "a": -0.0 }"#), r#"{"b":1.00,"a":-0.0,"c":2.50}"#);
        assert_eq!(
            merged(r#"{"a":{"z":1,"y":2}}"#, r#"{"a":{"y":3,"x":[{"k":null}]}}"#),
            r#"{"a":{"z":1,"y":3,"x":[{"k":null}]}}"#
        );
        assert_eq!(merged(r#"{"a":1}"#, "{}"), r#"{"a":1}"#);
    }

    #[test]
    fn names_are_compared_without_their_escapes() {
        assert_eq!(merged(r#"{"\u0061":1,"b\"}":2}"#, r#"{"a":3,"b\u0022}":"{,:"}"#), r#"{"\u0061":3,"b\"}":"{,:"}"#);
    }

    #[test]
    fn of_repeated_names_the_last_counts() {
        assert_eq!(merged(r#"{"a":1,"b":2,"a":3}"#, r#"{"b":4,"b":{"c":5},"b":6}"#), r#"{"a":3,"b":6}"#);
        assert_eq!(merged(r#"{"a":{"x":1}}"#, r#"{"a":null,"a":{"y":2}}"#), r#"{"a":{"x":1,"y":2}}"#);
    }

    #[test]
    fn the_result_is_measured() {
        let data = LinkData::from_json_object(&format!("{{\"a\":\"{}\"}}", "x".repeat(10_000))).unwrap();
        let more = format!("{{\"b\":\"{}\"}}", "x".repeat(300));
        assert_eq!(data.merged_with(&more), Err(DataTooLarge));
        assert!(data.merged_with(&more.replacen('{', "{\"a\":null,", 1)).is_ok());
    }
}
