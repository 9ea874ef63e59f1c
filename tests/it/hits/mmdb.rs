//! A `MaxMind` DB of two records, for layouts of databases that can't be fetched for a test.
//!
//! The first record is for addresses below 128.0.0.0, the second for all others.

use std::io::Write;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// The values of the format that databases of places use.
pub enum Value {
    Text(&'static str),
    U16(u16),
    U32(u32),
    U64(u64),
    Map(Vec<(&'static str, Value)>),
    List(Vec<Value>),
}

use Value::{List, Map, Text, U16, U32, U64};

impl Value {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Text(text) => {
                control(out, 2, text.len());
                out.extend(text.as_bytes());
            }
            U16(number) => {
                control(out, 5, 2);
                out.extend(number.to_be_bytes());
            }
            U32(number) => {
                control(out, 6, 4);
                out.extend(number.to_be_bytes());
            }
            U64(number) => {
                control(out, 9, 8);
                out.extend(number.to_be_bytes());
            }
            Map(entries) => {
                control(out, 7, entries.len());
                for (key, value) in entries {
                    Text(key).encode(out);
                    value.encode(out);
                }
            }
            List(values) => {
                control(out, 11, values.len());
                for value in values {
                    value.encode(out);
                }
            }
        }
    }
}

/// The byte with a value's type and size; types over 7 have a byte of their own.
fn control(out: &mut Vec<u8>, kind: u8, size: usize) {
    let (first, extended) = if kind > 7 { (0, Some(kind - 7)) } else { (kind << 5, None) };
    assert!(size < 29 + 256, "longer sizes are not needed here");
    let long = size >= 29;
    out.push(first | u8::try_from(size.min(29)).unwrap());
    out.extend(extended);
    if long {
        out.push(u8::try_from(size - 29).unwrap());
    }
}

/// Writes the database to a temporary file, and returns its path.
pub fn write(name: &str, low: &Value, high: &Value) -> PathBuf {
    let mut data = Vec::new();
    low.encode(&mut data);
    let high_at = data.len();
    high.encode(&mut data);

    // One node, whose two records of 24 bits point into the data behind 16 zero bytes.
    let pointer = |at: usize| u32::try_from(1 + 16 + at).unwrap().to_be_bytes();
    let mut file = Vec::new();
    file.extend(&pointer(0)[1..]);
    file.extend(&pointer(high_at)[1..]);
    file.extend([0; 16]);
    file.extend(data);
    file.extend(b"\xab\xcd\xefMaxMind.com");
    Map(vec![
        ("binary_format_major_version", U16(2)),
        ("binary_format_minor_version", U16(0)),
        ("build_epoch", U64(1_700_000_000)),
        ("database_type", Text("Signpost-Test")),
        ("description", Map(vec![("en", Text("for a test"))])),
        ("ip_version", U16(4)),
        ("languages", List(vec![Text("en")])),
        ("node_count", U32(1)),
        ("record_size", U16(24)),
    ])
    .encode(&mut file);

    // Tests that run at the same time may write the same file: every reader finds a complete one.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut written = NamedTempFile::new_in(folder).expect("the tests' folder takes files");
    written.write_all(&file).unwrap();
    let path = folder.join(name);
    written.persist(&path).unwrap();
    path
}
