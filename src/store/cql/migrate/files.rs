//! The files of `schema/scylla`: built in, identified by their hashes, and split into statements.

use std::fmt::Write;

use ring::digest::{SHA256, digest};

/// A file of the schema. Once it was applied anywhere it must not change: changes go into a later file.
///
/// Each of its statements creates a table, adds one column or sets how long a table keeps tombstones: others could not be applied again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaFile {
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(SchemaFile {
            name: $name,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/schema/scylla/", $name)),
        }),*]
    };
}

/// All of them, in the order in which they are applied.
pub const FILES: &[SchemaFile] = files![
    "0001_names.cql",
    "0002_links.cql",
    "0003_keys.cql",
    "0004_hits.cql",
    "0005_deliveries.cql",
    "0006_queues.cql",
    "0007_windows.cql",
    "0008_key_children.cql",
    "0009_link_changes.cql",
    "0010_replays.cql",
    "0011_link_lists.cql",
    "0012_idempotency.cql",
    "0013_suspensions.cql",
    "0014_sheets.cql",
    "0015_hit_streams.cql",
    "0016_tombstones.cql",
    "0017_links_to.cql",
];

/// What a statement `ALTER TABLE table ADD column type` adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedColumn<'a> {
    pub table: &'a str,
    pub column: &'a str,
}

/// `None` for a statement of another kind. One column a statement: engines differ in how they write several.
pub fn added_column(statement: &str) -> Option<AddedColumn<'_>> {
    let is_name =
        |word: &str| word.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let mut words = statement.split_whitespace();
    let mut next = || words.next();
    let ("ALTER", "TABLE", table, "ADD", column) = (next()?, next()?, next()?, next()?, next()?) else { return None };
    let of_type: String = words.collect();
    let mut depth = 0;
    let is_one = of_type.chars().all(|character| {
        depth += i32::from(character == '<') - i32::from(character == '>');
        character != ',' || depth > 0
    });
    (is_name(table) && is_name(column) && is_one && !of_type.is_empty()).then_some(AddedColumn { table, column })
}

impl SchemaFile {
    /// What is kept of a file that was applied: the SHA-256 of its text, in hex.
    pub fn sha256(&self) -> String {
        digest(&SHA256, self.text.as_bytes()).as_ref().iter().fold(String::new(), |mut hex, byte| {
            // Writing to a String never fails.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    /// Its statements, without comments and without the semicolons between them.
    pub fn statements(&self) -> Vec<String> {
        statements(self.text)
    }
}

fn statements(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut statement = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '-' if characters.peek() == Some(&'-') => {
                // The end of the line stays, and keeps words apart.
                while characters.next_if(|next| *next != '\n').is_some() {}
            }
            '\'' | '"' => {
                statement.push(character);
                // A quote that is doubled ends one literal and begins another, which comes to the same.
                for inner in characters.by_ref() {
                    statement.push(inner);
                    if inner == character {
                        break;
                    }
                }
            }
            ';' => found.push(std::mem::take(&mut statement)),
            other => statement.push(other),
        }
    }
    found.push(statement);
    found.iter().map(|statement| statement.trim().to_owned()).filter(|statement| !statement.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_has_these_files_and_no_others() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/scylla");
        let entries = std::fs::read_dir(folder).expect("the folder is there");
        let mut there: Vec<_> =
            entries.map(|entry| entry.expect("readable").file_name().into_string().expect("a plain name")).collect();
        there.sort();
        let names: Vec<_> = FILES.iter().map(|file| file.name).collect();
        assert_eq!(names, there);
    }

    #[test]
    fn every_statement_of_the_files_can_be_applied_again() {
        for file in FILES {
            assert!(!file.statements().is_empty(), "{}", file.name);
            for statement in file.statements() {
                let creates = statement.starts_with("CREATE TABLE IF NOT EXISTS ");
                let sets = statement.starts_with("ALTER TABLE ") && statement.contains(" WITH gc_grace_seconds = ");
                let can_be_repeated = creates || sets || added_column(&statement).is_some();
                assert!(can_be_repeated, "{}: {statement}", file.name);
            }
        }
    }

    #[test]
    fn a_statement_that_adds_one_column_is_told_from_others() {
        for statement in ["ALTER TABLE links ADD title text", "ALTER TABLE links\n    ADD title map<text, text>"] {
            assert_eq!(added_column(statement), Some(AddedColumn { table: "links", column: "title" }), "{statement}");
        }
        for other in [
            "ALTER TABLE links ADD title",
            "ALTER TABLE links ADD (title text, note text)",
            "ALTER TABLE links ADD title text, note text",
            "ALTER TABLE links ADD IF NOT EXISTS title text",
            "ALTER TABLE links DROP title",
            "CREATE TABLE links (id text PRIMARY KEY)",
            "",
        ] {
            assert_eq!(added_column(other), None, "{other}");
        }
    }

    #[test]
    fn a_text_is_taken_apart_at_its_semicolons() {
        for (text, expected) in [
            ("", &[][..]),
            ("-- only; a comment", &[]),
            (" ;; \n ; ", &[]),
            ("a", &["a"]),
            ("a; b;\n", &["a", "b"]),
            ("a -- one; two\nb;", &["a \nb"]),
            ("a - b; c-d", &["a - b", "c-d"]),
            ("a = 'it''s; -- so'; b", &["a = 'it''s; -- so'", "b"]),
            ("\"x;\"\"y\"; b", &["\"x;\"\"y\"", "b"]),
            ("a;-- end\n--\nb", &["a", "b"]),
        ] {
            assert_eq!(statements(text), expected, "{text:?}");
        }
    }
}
