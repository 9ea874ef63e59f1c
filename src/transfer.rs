//! Export files, which carry the content of a store to another one: lines of JSON between a header line and a line with
//! the checksum.
//!
//! Among the records there are positions: up to such a line the file is complete, and an interrupted export resumes
//! from there.

mod export;
mod import;
mod progress;

use std::fmt::{self, Write};
use std::io::{self, BufRead};
use std::path::PathBuf;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use crate::store::StoreError;
use crate::store::records::Time;
use crate::store::records::export::{RecordV1, SectionV1};
use crate::store::transfer::{Section, SinkError};

pub use self::export::export;
pub use self::import::{Checked, Imported, check, fill, import};

/// The format of the file. A release with a newer one reads the older ones too.
const FORMAT: u32 = 2;

/// Why a file was not written, or not read.
#[derive(Debug, Error)]
pub enum TransferError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is not a Signpost export", .0.display())]
    NotAnExport(PathBuf),
    #[error("{} has format {found}, this release reads {FORMAT}", path.display())]
    OtherFormat { path: PathBuf, found: u32 },
    #[error("{} is already complete: name another file, or delete it", .0.display())]
    Complete(PathBuf),
    #[error("{} is an export of another store: name another file, or delete it", .0.display())]
    OtherStore(PathBuf),
    #[error("{} was begun by another release: name another file, or delete it", .0.display())]
    OtherRelease(PathBuf),
    #[error("a node was started during the export: stop all nodes, and run the export again")]
    Served,
    #[error("{} is incomplete: run the export again", .0.display())]
    Incomplete(PathBuf),
    #[error("{}, line {line}: {reason}", path.display())]
    Damaged { path: PathBuf, line: u64, reason: String },
    #[error("{}: {} can't be imported, and nothing was:{}", path.display(), RecordCount(*.count), ImportFaults(.first))]
    Faults { path: PathBuf, count: u64, first: Vec<ImportFault> },
    #[error("the store is not empty: only an empty store can be imported into")]
    NotEmpty,
    #[error("an import from another file is in progress: use that file, or an empty store")]
    OtherFile,
    #[error(transparent)]
    Refused(#[from] SinkError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How many invalid records are listed.
const MOST_FAULTS_LISTED: usize = 100;

/// An invalid record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportFault {
    pub line: u64,
    pub reason: String,
}

struct RecordCount(u64);

impl fmt::Display for RecordCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 == 1 { "record" } else { "records" })
    }
}

/// Displays invalid records in one line, with their line numbers.
struct ImportFaults<'a>(&'a [ImportFault]);

impl fmt::Display for ImportFaults<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.iter().enumerate();
        all.into_iter().try_for_each(|(index, ImportFault { line, reason })| {
            write!(f, "{} line {line}: {reason}", if index == 0 { "" } else { ";" })
        })
    }
}

/// The number of records of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub keys: u64,
    pub links: u64,
    /// Counts of hits and of monthly use.
    pub counters: u64,
    /// Other records of the stores.
    pub others: u64,
}

impl Counts {
    fn add(&mut self, record: &RecordV1<'_>) {
        *match record {
            RecordV1::Key(_) => &mut self.keys,
            RecordV1::Link(_) => &mut self.links,
            RecordV1::Usage { .. } | RecordV1::Day { .. } | RecordV1::Label { .. } | RecordV1::Sheet { .. } => {
                &mut self.counters
            }
            RecordV1::KeyUse { .. }
            | RecordV1::Cursor { .. }
            | RecordV1::Name { .. }
            | RecordV1::KeptName { .. }
            | RecordV1::Revision { .. }
            | RecordV1::Deletion { .. } => &mut self.others,
        } += 1;
    }
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "one line is in memory at a time, and nearly all are records")]
enum ExportLine<'a> {
    SignpostExport(Header),
    Place(ExportPlace),
    End(End),
    #[serde(untagged)]
    Record(RecordV1<'a>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    format: u32,
    /// Identifies this export.
    id: Uuid,
    /// The version of the program that wrote it.
    version: String,
    at: Time,
    /// The id of the root key, which identifies the exported store.
    root_key: Option<Vec<u8>>,
    /// The number that the last start of a node has left in the store. After a later start, the store may have other records than the file.
    #[serde(default)]
    last_start: u64,
}

/// The position from which to resume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ExportPlace {
    section: SectionV1,
    from: Option<String>,
}

impl ExportPlace {
    fn new(section: Section, from: Option<String>) -> Self {
        Self { section: section.into(), from }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct End {
    counts: Counts,
    /// The checksum of all bytes before this line, in hex.
    sha256: String,
}

/// Reads lines, and tracks the position and the checksum.
struct ExportLines<R> {
    path: PathBuf,
    from: R,
    text: Vec<u8>,
    hash: Context,
    /// The offset of the next line in the file.
    offset: u64,
    /// The number of lines read.
    number: u64,
}

impl<R: BufRead> ExportLines<R> {
    fn new(path: PathBuf, from: R) -> Self {
        Self { path, from, text: Vec::new(), hash: Context::new(&SHA256), offset: 0, number: 0 }
    }

    /// The next line; `None` at the end, and if the last line is incomplete.
    fn next(&mut self) -> Result<Option<ExportLine<'static>>, TransferError> {
        self.text.clear();
        let read = self.from.read_until(b'\n', &mut self.text).map_err(|source| self.file_error(source))?;
        if read == 0 || self.text.last() != Some(&b'\n') {
            return Ok(None);
        }
        self.number += 1;
        self.offset += read as u64;
        let line = serde_json::from_slice(&self.text);
        if !matches!(line, Ok(ExportLine::End(_))) {
            self.hash.update(&self.text);
        }
        line.map(Some).map_err(|error| self.damaged(&error))
    }

    /// The first line.
    fn header(&mut self) -> Result<Header, TransferError> {
        match self.next() {
            Ok(Some(ExportLine::SignpostExport(header))) if (1..=FORMAT).contains(&header.format) => Ok(header),
            Ok(Some(ExportLine::SignpostExport(header))) => {
                Err(TransferError::OtherFormat { path: self.path.clone(), found: header.format })
            }
            Err(error @ TransferError::File { .. }) => Err(error),
            _ => Err(TransferError::NotAnExport(self.path.clone())),
        }
    }

    fn file_error(&self, source: io::Error) -> TransferError {
        TransferError::File { path: self.path.clone(), source }
    }

    fn damaged(&self, reason: &dyn std::fmt::Display) -> TransferError {
        TransferError::Damaged { path: self.path.clone(), line: self.number, reason: reason.to_string() }
    }
}

fn hex(hash: Context) -> String {
    hash.finish().as_ref().iter().fold(String::new(), |mut text, byte| {
        // Writing to a String never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
