//! Writes an export file.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ring::digest::{Context, SHA256};
use uuid::Uuid;

use super::progress::Progress;
use super::{Counts, End, ExportLine, ExportLines, ExportPlace, FORMAT, Header, TransferError, hex};
use crate::domain::calendar::Timestamp;
use crate::store::records::Time;
use crate::store::records::export::RecordV1;
use crate::store::transfer::{ExportSource, ROOT_KEY, Record, Section};

/// Exports a store to a file that only its owner can read. Resumes an incomplete export, unless a node was started since: then it begins
/// anew, because what the file has may have changed.
pub async fn export(source: &dyn ExportSource, path: &Path, now: Timestamp) -> Result<Counts, TransferError> {
    let failed = |source: io::Error| TransferError::File { path: path.to_owned(), source };
    let root_key = root_key(source).await?;
    source.check_idle().await?;
    let last_start = source.last_start().await?;
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(failed)?;
    let partial = match partial(path, &file)? {
        Some(partial) if partial.header.root_key != root_key => {
            return Err(TransferError::OtherStore(path.to_owned()));
        }
        // Its first line promises records of that format only.
        Some(partial) if partial.header.format != FORMAT => return Err(TransferError::OtherRelease(path.to_owned())),
        Some(partial) if partial.header.last_start == last_start => partial,
        _ => {
            let version = env!("CARGO_PKG_VERSION").to_owned();
            let header = Header { format: FORMAT, id: Uuid::new_v4(), version, at: Time(now), root_key, last_start };
            PartialExport { header, place: None, length: 0, counts: Counts::default(), hash: Context::new(&SHA256) }
        }
    };
    // The file belongs to this store from here on; before this check it is left unchanged.
    file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
    file.set_len(partial.length).map_err(failed)?;
    let mut out = ExportWriter { file: BufWriter::new(&file), hash: partial.hash };
    out.file.seek(SeekFrom::Start(partial.length)).map_err(failed)?;
    if partial.length == 0 {
        out.line(&ExportLine::SignpostExport(partial.header)).map_err(failed)?;
    }

    let mut counts = partial.counts;
    let mut progress = Progress::of_records("exported");
    let mut place = partial.place.unwrap_or_else(|| ExportPlace::new(Section::ALL[0], None));
    loop {
        let section = Section::from(place.section);
        let page = source.read_page(section, place.from.as_deref()).await?;
        for record in &page.records {
            let record = RecordV1::from(record);
            counts.add(&record);
            out.line(&ExportLine::Record(record)).map_err(failed)?;
        }
        progress.at(counts.keys + counts.links + counts.counters);
        place = match (page.next, section.next()) {
            (Some(from), _) => ExportPlace::new(section, Some(from)),
            (None, Some(section)) => ExportPlace::new(section, None),
            (None, None) => break,
        };
        out.line(&ExportLine::Place(place.clone())).map_err(failed)?;
    }
    source.check_idle().await?;
    if source.last_start().await? != last_start {
        return Err(TransferError::Served);
    }
    let end = End { counts, sha256: hex(out.hash.clone()) };
    out.line(&ExportLine::End(end)).map_err(failed)?;
    out.file.flush().map_err(failed)?;
    file.sync_all().map_err(failed)?;
    progress.end();
    Ok(counts)
}

async fn root_key(source: &dyn ExportSource) -> Result<Option<Vec<u8>>, TransferError> {
    let names = source.read_page(Section::Names, None).await?.records;
    Ok(names.into_iter().find_map(|record| match record {
        Record::Name { name, value } if name == ROOT_KEY => Some(value),
        _ => None,
    }))
}

/// The complete part of an interrupted export.
struct PartialExport {
    header: Header,
    /// `None` if there is no position yet.
    place: Option<ExportPlace>,
    length: u64,
    counts: Counts,
    hash: Context,
}

/// Reads what an interrupted export left; `None` for an empty file.
fn partial(path: &Path, file: &File) -> Result<Option<PartialExport>, TransferError> {
    let failed = |source: io::Error| TransferError::File { path: path.to_owned(), source };
    if file.metadata().map_err(failed)?.len() == 0 {
        return Ok(None);
    }
    let mut lines = ExportLines::new(path.to_owned(), BufReader::new(file));
    let header = lines.header()?;
    let (mut counts, mut good) = (Counts::default(), None);
    let mut best = PartialExport { header, place: None, length: lines.offset, counts, hash: lines.hash.clone() };
    // An unreadable line is what a crash left behind the last position.
    while let Ok(Some(line)) = lines.next() {
        match line {
            ExportLine::SignpostExport(_) => return Err(TransferError::NotAnExport(path.to_owned())),
            ExportLine::End(_) => return Err(TransferError::Complete(path.to_owned())),
            ExportLine::Record(record) => counts.add(&record),
            ExportLine::Place(place) => good = Some((place, lines.offset, counts, lines.hash.clone())),
        }
    }
    if let Some((place, length, counts, hash)) = good {
        best = PartialExport { place: Some(place), length, counts, hash, ..best };
    }
    Ok(Some(best))
}

struct ExportWriter<W: Write> {
    file: BufWriter<W>,
    hash: Context,
}

impl<W: Write> ExportWriter<W> {
    fn line(&mut self, line: &ExportLine<'_>) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.hash.update(&text);
        self.file.write_all(&text)
    }
}
