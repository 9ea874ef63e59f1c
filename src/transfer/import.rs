//! Imports an export file into an empty store.

use std::fs::{self, File};
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::progress::Progress;
use super::{Counts, ExportLine, ExportLines, Header, ImportFault, MOST_FAULTS_LISTED, TransferError, hex};
use crate::domain::key::SealedSecret;
use crate::store::transfer::{FILLED, FILLED_FROM, MASTER_KEY_CHECK, NAMES, Record, Sink};

/// How many records are written to the store at once.
const BATCH: usize = 1_000;

/// The result of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    Now(Counts),
    /// An earlier import was complete.
    Before,
}

/// The progress of an import, in a file beside the export.
#[derive(Debug, Serialize, Deserialize)]
struct ImportPosition {
    /// Identifies the import into this store.
    run: Uuid,
    offset: u64,
}

/// Fills a store. An interrupted import resumes; records that are written twice change nothing.
pub async fn import(sink: &dyn Sink, path: &Path) -> Result<Imported, TransferError> {
    fill(sink, check(path)?).await
}

/// A file that was checked and can be imported.
pub struct Checked {
    path: PathBuf,
    header: Header,
    counts: Counts,
    length: u64,
    /// Identifies the master key of the exported store; `None` if it had none yet.
    pub master_key_check: Option<SealedSecret>,
}

/// As [`import`], from a file that was checked.
pub async fn fill(sink: &dyn Sink, file: Checked) -> Result<Imported, TransferError> {
    let Checked { path, header, counts, length, .. } = file;
    let path = path.as_path();
    if sink.kept(FILLED).await?.as_deref() == Some(header.id.as_bytes()) {
        return Ok(Imported::Before);
    }
    let reached_path = reached_path(path);
    let known = reached(&reached_path);
    // Before anything is written: an import that can't note its progress would end after its first records.
    note(&reached_path, known.as_ref().unwrap_or(&ImportPosition { run: Uuid::nil(), offset: 0 }))?;
    let run = begin(sink, &header).await?;
    let offset = known.filter(|reached| reached.run == run).map_or(0, |reached| reached.offset);

    let failed = |source: io::Error| TransferError::File { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut lines = ExportLines::new(path.to_owned(), BufReader::new(file));
    let mut progress = Progress::of_bytes("importing", length);
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        // The file may have been cut off since the check.
        let line = lines.next()?.ok_or_else(|| TransferError::Incomplete(path.to_owned()))?;
        let is_last = matches!(line, ExportLine::End(_));
        if let ExportLine::Record(record) = line {
            // The file may have changed since the check.
            let record = record.checked(header.root_key.as_deref());
            batch.push(record.map_err(|reason| lines.damaged(&reason))?);
        }
        if batch.len() == BATCH || is_last {
            sink.write(std::mem::replace(&mut batch, Vec::with_capacity(BATCH))).await?;
            let reached = ImportPosition { run, offset: offset + lines.offset };
            note(&reached_path, &reached)?;
            progress.at(reached.offset);
        }
        if is_last {
            break;
        }
    }
    sink.write(vec![Record::Name { name: FILLED.to_owned(), value: header.id.as_bytes().to_vec() }]).await?;
    // The progress is no longer needed.
    let _ = fs::remove_file(&reached_path);
    progress.end();
    Ok(Imported::Now(counts))
}

/// Checks the whole file before anything is written. Every record must be one that the service could have made.
pub fn check(path: &Path) -> Result<Checked, TransferError> {
    let failed = |source: io::Error| TransferError::File { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut lines = ExportLines::new(path.to_owned(), BufReader::new(file));
    let mut progress = Progress::of_bytes("checking", length);
    let header = lines.header()?;
    let (mut counts, mut found, mut master_key_check) = (Counts::default(), FoundFaults::default(), None);
    let end = loop {
        match lines.next() {
            Ok(Some(ExportLine::Record(record))) => {
                counts.add(&record);
                match record.checked(header.root_key.as_deref()) {
                    Ok(Record::Name { name, value }) if name == MASTER_KEY_CHECK => {
                        master_key_check = Some(SealedSecret(value));
                    }
                    Ok(_) => {}
                    Err(reason) => found.note(lines.number, reason),
                }
            }
            Ok(Some(ExportLine::Place(_))) => progress.at(lines.offset),
            Ok(Some(ExportLine::SignpostExport(_))) => return Err(lines.damaged(&"a second header")),
            Ok(Some(ExportLine::End(end))) => break end,
            Ok(None) => return Err(TransferError::Incomplete(path.to_owned())),
            Err(TransferError::Damaged { line, reason, .. }) => found.note(line, reason),
            Err(error) => return Err(error),
        }
    };
    progress.end();
    if found.count > 0 {
        return Err(TransferError::Faults { path: path.to_owned(), count: found.count, first: found.first });
    }
    if end.counts != counts || end.sha256 != hex(lines.hash.clone()) {
        return Err(lines.damaged(&"the checksum does not match: the file was changed"));
    }
    if lines.offset != length {
        return Err(lines.damaged(&"there is data after the end line"));
    }
    Ok(Checked { path: path.to_owned(), header, counts, length, master_key_check })
}

/// The invalid records.
#[derive(Default)]
struct FoundFaults {
    count: u64,
    first: Vec<ImportFault>,
}

impl FoundFaults {
    fn note(&mut self, line: u64, reason: String) {
        self.count += 1;
        if self.first.len() < MOST_FAULTS_LISTED {
            self.first.push(ImportFault { line, reason });
        }
    }
}

/// Makes sure that the store has only records of this file, and returns the id of the import.
async fn begin(sink: &dyn Sink, header: &Header) -> Result<Uuid, TransferError> {
    if let Some(mark) = sink.kept(FILLED_FROM).await? {
        let (id, run) = mark.split_at_checked(16).ok_or(TransferError::OtherFile)?;
        let run = Uuid::from_slice(run).map_err(|_| TransferError::OtherFile)?;
        return if id == header.id.as_bytes() { Ok(run) } else { Err(TransferError::OtherFile) };
    }
    // An interrupted first start may have left these names too: the import would fail at its end, where the file has
    // them.
    for name in NAMES {
        if sink.kept(name).await?.is_some() {
            return Err(TransferError::NotEmpty);
        }
    }
    let run = Uuid::new_v4();
    let value = [header.id.as_bytes().as_slice(), run.as_bytes()].concat();
    sink.write(vec![Record::Name { name: FILLED_FROM.to_owned(), value }]).await?;
    Ok(run)
}

fn reached_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".progress");
    name.into()
}

/// An unreadable file counts as none: then all records are written again, which changes nothing.
fn reached(path: &Path) -> Option<ImportPosition> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn note(path: &Path, reached: &ImportPosition) -> Result<(), TransferError> {
    let failed = |source: io::Error| TransferError::File { path: path.to_owned(), source };
    let unfinished = path.with_extension("progress.new");
    fs::write(&unfinished, serde_json::to_vec(reached).map_err(|error| failed(error.into()))?).map_err(failed)?;
    fs::rename(&unfinished, path).map_err(failed)
}
