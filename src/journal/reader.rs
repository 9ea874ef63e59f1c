//! The journal's reader. It reads the segments of earlier processes and then those of this process, in order of
//! position.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use super::SharedJournal;
use super::append_log::{LogReader, LogStep};
use super::format::{RecordLayout, SegmentHeader};
use super::record::HitRecord;
use super::recovery::{OldSegment, RecoveryReport, Scan, UNREADABLE_EXTENSION};
use super::segment::{Mapped, Segment};
use crate::domain::hit::Position;

/// The result of [`JournalReader::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// How many records were passed to the caller.
    pub records: usize,
    /// Whether it ended because there was no further record to read.
    pub caught_up: bool,
    /// The position up to which the journal has been read.
    pub upto: Position,
}

/// Reads the journal from a position on, and deletes segments whose hits are counted.
#[derive(Debug)]
pub struct JournalReader {
    shared: Arc<SharedJournal>,
    /// The position up to which the journal has been read.
    cursor: Position,
    /// The position up to which no record is read again.
    released: Position,
    /// Segments that are still on disk, in order of position.
    segments: VecDeque<UndeletedSegment>,
    /// The index of the segment that is read; the length of `segments` while the reader waits for another segment.
    at: usize,
    open: Option<OpenSegment>,
    recovery: RecoveryReport,
    garbage_reported: bool,
    /// Whether it was logged that segments can't be deleted.
    failed_deletion_reported: bool,
    /// Why the next segment can't be opened now.
    not_opened: Option<io::Error>,
}

/// Whether this process or the system has no more files or memory at the moment.
fn is_short_of_resources(error: &io::Error) -> bool {
    let errors = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN, Errno::INTR];
    Errno::from_io_error(error).is_some_and(|error| errors.contains(&error))
}

#[derive(Debug)]
struct UndeletedSegment {
    source: SegmentSource,
    /// The end of its last record; known once the segment was read to its end.
    last_record: Option<Position>,
    /// Whether the recovery report includes it. Reading it again then adds nothing to the report.
    reported: bool,
}

#[derive(Debug)]
enum SegmentSource {
    /// A segment of an earlier process.
    Old(OldSegment),
    /// A segment of this process.
    Live(Arc<Segment>),
}

impl SegmentSource {
    fn header(&self) -> &SegmentHeader {
        match self {
            Self::Old(old) => &old.header,
            Self::Live(segment) => segment.header(),
        }
    }
}

/// The segment that is being read.
#[derive(Debug)]
struct OpenSegment {
    reading: Reading,
    base: Position,
    layout: RecordLayout,
    last_record: Position,
}

#[derive(Debug)]
enum Reading {
    Old { scan: Scan, before: RecoveryReport },
    Live { segment: Arc<Segment>, log: LogReader<Mapped> },
}

impl JournalReader {
    pub(super) fn new(
        shared: Arc<SharedJournal>,
        cursor: Position,
        old: Vec<OldSegment>,
        recovery: RecoveryReport,
    ) -> Self {
        let segments = old
            .into_iter()
            .map(|old| {
                // All records of a segment below the cursor are counted, so it need not be read.
                let last_record = (old.header.end() <= cursor).then_some(cursor);
                UndeletedSegment { source: SegmentSource::Old(old), last_record, reported: false }
            })
            .collect();
        let mut reader = Self {
            shared,
            cursor,
            released: cursor,
            segments,
            at: 0,
            open: None,
            recovery,
            garbage_reported: false,
            failed_deletion_reported: false,
            not_opened: None,
        };
        reader.delete_released();
        reader
    }

    /// Calls `each` with the next records, at most `max`, in order of position, and with the position of each record's
    /// end.
    ///
    /// It never waits. A record that is still being written is read by a later call. If `each` panics,
    /// [`Self::rewind`] makes the records readable again.
    pub fn read(&mut self, max: usize, each: &mut dyn FnMut(Position, HitRecord<'_>)) -> ReadOutcome {
        let mut records = 0;
        let mut caught_up = false;
        while records < max && !caught_up {
            match self.next(each) {
                ReadStep::Record => records += 1,
                ReadStep::NoRecord => {}
                ReadStep::CaughtUp => caught_up = true,
            }
        }
        self.report_progress();
        ReadOutcome { records, caught_up, upto: self.cursor }
    }

    /// The error if the last read ended because a segment could not be opened for want of files or memory. What is behind
    /// that is not read yet, although the read is said to have caught up.
    pub fn take_not_opened(&mut self) -> Option<io::Error> {
        self.not_opened.take()
    }

    /// Deletes the segments whose records all end at or before `upto`, which frees disk budget. It never deletes
    /// segments that are not read to their end.
    pub fn release(&mut self, upto: Position) {
        self.released = self.released.max(upto.min(self.cursor));
        self.delete_released();
    }

    /// Goes back, so that every record above `to` is read again. Released records can't be read again: a lower `to` is
    /// raised to their end.
    pub fn rewind(&mut self, to: Position) {
        self.cursor = self.cursor.min(to.max(self.released));
        self.forget_open();
        for segment in &mut self.segments {
            segment.last_record = None;
        }
        self.at = 0;
        self.report_progress();
    }

    /// Forgets what was read of the open segment, which is read again from its beginning.
    fn forget_open(&mut self) {
        if let Some(OpenSegment { reading: Reading::Old { before, .. }, .. }) = self.open.take() {
            self.recovery = before;
        }
    }

    /// The end of the segments that earlier processes left to be read; `None` if there are none.
    pub fn left_upto(&self) -> Option<Position> {
        let old = self.segments.iter().filter_map(|segment| match &segment.source {
            SegmentSource::Old(old) if segment.last_record.is_none() => Some(old.header.end()),
            _ => None,
        });
        old.max()
    }

    /// What was found at the start, and since then in segments of earlier processes.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    fn next(&mut self, each: &mut dyn FnMut(Position, HitRecord<'_>)) -> ReadStep {
        if !self.open_next() {
            return ReadStep::CaughtUp;
        }
        // Can't fail: it was just opened.
        let Some(open) = &mut self.open else { return ReadStep::CaughtUp };
        let cursor = &mut self.cursor;
        let mut handled = Handled::Undecodable;
        let mut handle = |end: usize, payload: &[u8]| {
            let end = Position(open.base.0 + end as u64);
            open.last_record = end;
            if end <= *cursor {
                handled = Handled::BelowCursor;
                return;
            }
            *cursor = end;
            if let Ok(hit) = HitRecord::decode(open.layout, payload) {
                handled = Handled::Read;
                each(end, hit);
            }
        };
        let next = match &mut open.reading {
            Reading::Live { log, .. } => log.next(&mut handle),
            Reading::Old { scan, .. } => match scan.next(&mut self.recovery, &mut handle) {
                Ok(Some(())) => LogStep::Record(()),
                Ok(None) => LogStep::End,
                // Nothing is wrong with the file. It is read again from its beginning; the cursor skips what was read.
                Err(error) if is_short_of_resources(&error) => {
                    self.forget_open();
                    self.not_opened = Some(error);
                    return ReadStep::CaughtUp;
                }
                Err(error) => return self.abandon(&error),
            },
        };
        match next {
            LogStep::Record(()) => match handled {
                Handled::Read => ReadStep::Record,
                Handled::BelowCursor => ReadStep::NoRecord,
                Handled::Undecodable => {
                    self.recovery.undecodable_records += 1;
                    ReadStep::NoRecord
                }
            },
            LogStep::Damaged(bytes) => {
                self.recovery.holes += 1;
                self.recovery.torn_bytes += bytes as u64;
                tracing::error!(bytes, "skipped a damaged journal record");
                ReadStep::NoRecord
            }
            LogStep::Garbage => {
                if !self.garbage_reported {
                    self.garbage_reported = true;
                    tracing::error!("another program wrote to the journal: restart to read past it");
                }
                ReadStep::CaughtUp
            }
            LogStep::Pending => ReadStep::CaughtUp,
            LogStep::End => {
                self.finish();
                ReadStep::NoRecord
            }
        }
    }

    /// Opens the next segment unless one is open. Returns whether a segment is open.
    fn open_next(&mut self) -> bool {
        while self.open.is_none() {
            if self.at == self.segments.len() {
                let last = self.segments.back().map(|segment| segment.source.header().sequence);
                let Some(segment) = self.shared.live_after(last) else { return false };
                self.segments.push_back(UndeletedSegment {
                    source: SegmentSource::Live(segment),
                    last_record: None,
                    reported: false,
                });
            }
            let source = &self.segments[self.at].source;
            let SegmentHeader { base, layout, .. } = *source.header();
            let reading = match source {
                SegmentSource::Live(segment) => {
                    Reading::Live { log: LogReader::new(Arc::clone(segment)), segment: Arc::clone(segment) }
                }
                SegmentSource::Old(old) => match Scan::open(old) {
                    Ok(scan) => Reading::Old { scan, before: self.recovery },
                    // Nothing is wrong with the file.
                    Err(error) if is_short_of_resources(&error) => {
                        self.not_opened = Some(error);
                        return false;
                    }
                    Err(error) => {
                        self.abandon(&error);
                        continue;
                    }
                },
            };
            self.not_opened = None;
            self.open = Some(OpenSegment { reading, base, layout, last_record: Position(0) });
        }
        true
    }

    /// Closes a segment that was read to its end.
    fn finish(&mut self) {
        let Some(open) = self.open.take() else { return };
        let segment = &mut self.segments[self.at];
        segment.last_record = Some(open.last_record);
        match (&open.reading, &segment.source) {
            (Reading::Live { segment, log }, _) => segment.mark_read(log.offset()),
            (Reading::Old { before, .. }, SegmentSource::Old(_)) if segment.reported => {
                self.recovery = *before;
            }
            (Reading::Old { before, .. }, SegmentSource::Old(old)) => {
                segment.reported = true;
                let holes = self.recovery.holes - before.holes;
                let torn_bytes = self.recovery.torn_bytes - before.torn_bytes;
                if holes > 0 {
                    let path = old.path.display();
                    tracing::warn!(%path, holes, torn_bytes, "skipped torn journal records");
                }
            }
            (Reading::Old { .. }, SegmentSource::Live(_)) => {}
        }
        self.at += 1;
        self.note_left_read();
        // The file is unmapped before it is deleted, because its blocks may stay allocated while it is mapped.
        drop(open);
        self.delete_released();
    }

    /// Skips an old segment that can't be read, and keeps its file under a name that is not that of a segment: the cursor passes
    /// its records, so the next start would take it for counted and delete it.
    fn abandon(&mut self, error: &io::Error) -> ReadStep {
        self.open = None;
        self.recovery.unreadable_segments += 1;
        if let Some(UndeletedSegment { source: SegmentSource::Old(old), .. }) = self.segments.remove(self.at) {
            let kept = old.path.with_added_extension(UNREADABLE_EXTENSION);
            let rename_error = self.shared.rename(&old.path, &kept).err().map(tracing::field::display);
            tracing::error!(path = %kept.display(), %error, rename_error, "can't read a journal segment: its file is kept");
        }
        self.note_left_read();
        ReadStep::NoRecord
    }

    fn note_left_read(&self) {
        if !self.segments.iter().skip(self.at).any(|segment| matches!(segment.source, SegmentSource::Old(_))) {
            self.shared.mark_left_read(self.cursor);
        }
    }

    fn delete_released(&mut self) {
        let mut deleted = false;
        while let Some(UndeletedSegment { source, last_record: Some(last_record), .. }) = self.segments.front() {
            if *last_record > self.released {
                break;
            }
            let removed = match source {
                SegmentSource::Old(old) => self.shared.delete(&old.path, old.file_bytes),
                SegmentSource::Live(segment) => self.shared.delete_live(segment),
            };
            if let Err(error) = removed {
                // It is tried again after each counted batch, and logged only once.
                if !std::mem::replace(&mut self.failed_deletion_reported, true) {
                    let path = self.shared.directory.display();
                    tracing::warn!(%path, %error, "can't delete counted journal segments: retrying");
                }
                break;
            }
            self.failed_deletion_reported = false;
            self.segments.pop_front();
            self.at = self.at.saturating_sub(1);
            deleted = true;
        }
        if deleted {
            self.shared.space_was_freed();
        }
    }

    fn report_progress(&self) {
        let position = match &self.open {
            Some(OpenSegment { reading: Reading::Live { segment, log }, .. }) => {
                segment.mark_read(log.offset());
                segment.position(log.offset())
            }
            _ => self.cursor,
        };
        self.shared.mark_read(position);
    }
}

/// The result of one step of [`JournalReader::read`].
enum ReadStep {
    /// A record was passed to the caller.
    Record,
    /// A record was skipped, or a segment ended.
    NoRecord,
    /// There is no further record to read now.
    CaughtUp,
}

/// What was done with a record.
enum Handled {
    Read,
    /// Skipped, because the cursor includes it.
    BelowCursor,
    Undecodable,
}
