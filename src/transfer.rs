//! Files that carry all a store keeps to another one: lines of JSON, between a line that says what it is and one that says
//! that it is whole.
//!
//! Between the records stand places: up to there the file is good, and from there its store can go on giving.

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

/// The form of the file. A release that changes it reads the older ones too.
const FORMAT: u32 = 1;

/// Why a file was not written, or not read.
#[derive(Debug, Error)]
pub enum TransferError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is not a Signpost export", .0.display())]
    NotAnExport(PathBuf),
    #[error("{} has format {found}, this release reads {FORMAT}", path.display())]
    OtherForm { path: PathBuf, found: u32 },
    #[error("{} is already complete: name another file, or delete it", .0.display())]
    Complete(PathBuf),
    #[error("{} is an export of another store: name another file, or delete it", .0.display())]
    OtherStore(PathBuf),
    #[error("{} is incomplete: run the export again, it resumes", .0.display())]
    Incomplete(PathBuf),
    #[error("{}, line {line}: {reason}", path.display())]
    Damaged { path: PathBuf, line: u64, reason: String },
    #[error("{}: {} can't be imported, and nothing was:{}", path.display(), Records(*.count), Faults(.first))]
    Faults { path: PathBuf, count: u64, first: Vec<Fault> },
    #[error("the store is not empty: only an empty store can be imported into")]
    NotEmpty,
    #[error("an import from another file is in progress: use that file, or an empty store")]
    OtherFile,
    #[error(transparent)]
    Refused(#[from] SinkError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How many records with faults are told of.
const FAULTS_TOLD: usize = 100;

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub line: u64,
    pub reason: String,
}

struct Records(u64);

impl fmt::Display for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 == 1 { "record" } else { "records" })
    }
}

/// One behind the other, each with its line.
struct Faults<'a>(&'a [Fault]);

impl fmt::Display for Faults<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.iter().enumerate();
        all.into_iter().try_for_each(|(index, Fault { line, reason })| {
            write!(f, "{} line {line}: {reason}", if index == 0 { "" } else { ";" })
        })
    }
}

/// How many records of each kind a file has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub keys: u64,
    pub links: u64,
    /// Of hits and of monthly use.
    pub counters: u64,
    /// What the stores need besides.
    pub others: u64,
}

impl Counts {
    fn add(&mut self, record: &RecordV1<'_>) {
        *match record {
            RecordV1::Key(_) => &mut self.keys,
            RecordV1::Link(_) => &mut self.links,
            RecordV1::Usage { .. } | RecordV1::Day { .. } | RecordV1::Label { .. } => &mut self.counters,
            RecordV1::KeyUse { .. } | RecordV1::Cursor { .. } | RecordV1::Name { .. } => &mut self.others,
        } += 1;
    }
}

/// One line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// Tells this export from all others.
    id: Uuid,
    /// Of the program that wrote it.
    version: String,
    at: Time,
    /// The root key of the store it is from, which tells that store from others.
    root_key: Option<Vec<u8>>,
}

/// From where to go on.
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
    /// Of all bytes before this line, in hex.
    sha256: String,
}

/// Reads lines, and keeps account of what it has read.
struct ExportLines<R> {
    path: PathBuf,
    from: R,
    text: Vec<u8>,
    hash: Context,
    /// Bytes of the file before the next line.
    offset: u64,
    /// Lines read.
    number: u64,
}

impl<R: BufRead> ExportLines<R> {
    fn new(path: PathBuf, from: R) -> Self {
        Self { path, from, text: Vec::new(), hash: Context::new(&SHA256), offset: 0, number: 0 }
    }

    /// The next line; `None` at the end, and where the last line has no end.
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
                Err(TransferError::OtherForm { path: self.path.clone(), found: header.format })
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
