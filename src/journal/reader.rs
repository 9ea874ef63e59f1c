//! The journal's one reader: old segments first, then those of this life, in order of position.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::SharedJournal;
use super::append_log::{LogReader, LogStep};
use super::record::HitRecord;
use super::recovery::{OldSegment, RecoveryReport, Scan};
use super::segment::{Mapped, Segment};
use crate::domain::hit::Position;

/// How a [`JournalReader::read`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// How many records were shown.
    pub records: usize,
    /// Whether it ended because there are no further records for now.
    pub caught_up: bool,
    /// The position that covers all that was read so far.
    pub upto: Position,
}

/// Reads the journal from a cursor on, and deletes what has been consumed.
#[derive(Debug)]
pub struct JournalReader {
    shared: Arc<SharedJournal>,
    /// Covers all that was read.
    cursor: Position,
    /// Covers all that is consumed for good.
    released: Position,
    /// Segments that are still on disk, in order of position.
    segments: VecDeque<Unreleased>,
    /// Which of them is being read; one past the last when the reader waits for another.
    at: usize,
    open: Option<Open>,
    recovery: RecoveryReport,
    garbage_reported: bool,
    /// Whether it was told that consumed segments can't be deleted.
    stuck_reported: bool,
}

#[derive(Debug)]
struct Unreleased {
    source: Source,
    /// The end of its last record; known once it has been read to its end.
    last_record: Option<Position>,
    /// Whether the report includes it, so that reading it again adds nothing.
    reported: bool,
}

#[derive(Debug)]
enum Source {
    Old(OldSegment),
    Live(Arc<Segment>),
}

impl Source {
    fn sequence(&self) -> u64 {
        match self {
            Self::Old(old) => old.header.sequence,
            Self::Live(segment) => segment.header().sequence,
        }
    }

    fn base(&self) -> Position {
        match self {
            Self::Old(old) => old.header.base,
            Self::Live(segment) => segment.header().base,
        }
    }
}

/// The segment that is being read.
#[derive(Debug)]
struct Open {
    reading: Reading,
    base: Position,
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
                // Nothing in a segment that lies below the cursor has to be looked at.
                let last_record = (old.header.end() <= cursor).then_some(cursor);
                Unreleased { source: Source::Old(old), last_record, reported: false }
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
            stuck_reported: false,
        };
        reader.delete_consumed();
        reader
    }

    /// Shows the next records to `each`, at most `max` of them, in order of position. With each comes
    /// the position of its end: the cursor that includes it.
    ///
    /// Never waits: where the next record is still being written, it is shown by a later call. If
    /// `each` panics, what was not consumed can be had again with [`Self::rewind`].
    pub fn read(&mut self, max: usize, each: &mut dyn FnMut(Position, HitRecord<'_>)) -> ReadOutcome {
        let mut records = 0;
        let mut caught_up = false;
        while records < max && !caught_up {
            match self.next(each) {
                ReadStep::Shown => records += 1,
                ReadStep::Passed => {}
                ReadStep::Waits => caught_up = true,
            }
        }
        self.tell_progress();
        ReadOutcome { records, caught_up, upto: self.cursor }
    }

    /// Deletes the segments all of whose records end at or before `upto`; their bytes are free for
    /// the budget again. Never deletes what was not read, nor the segment that is written to.
    pub fn release(&mut self, upto: Position) {
        self.released = self.released.max(upto.min(self.cursor));
        self.delete_consumed();
    }

    /// Goes back, so that every record above `to` is read again. What was released is gone: `to` is
    /// taken to be at least that.
    pub fn rewind(&mut self, to: Position) {
        self.cursor = self.cursor.min(to.max(self.released));
        if let Some(Open { reading: Reading::Old { before, .. }, .. }) = self.open.take() {
            self.recovery = before;
        }
        for segment in &mut self.segments {
            segment.last_record = None;
        }
        self.at = 0;
        self.tell_progress();
    }

    /// The end of what earlier lives left to be read; `None` where they left no segment that has to be looked at.
    pub fn left_upto(&self) -> Option<Position> {
        let old = self.segments.iter().filter_map(|segment| match &segment.source {
            Source::Old(old) if segment.last_record.is_none() => Some(old.header.end()),
            _ => None,
        });
        old.max()
    }

    /// What was found at the start, and since then while reading what an earlier life wrote.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    fn next(&mut self, each: &mut dyn FnMut(Position, HitRecord<'_>)) -> ReadStep {
        if !self.open_next() {
            return ReadStep::Waits;
        }
        // Can't fail: it was just opened.
        let Some(open) = &mut self.open else { return ReadStep::Waits };
        let cursor = &mut self.cursor;
        let mut shown = Shown::Undecodable;
        let mut show = |end: usize, payload: &[u8]| {
            let end = Position(open.base.0 + end as u64);
            open.last_record = end;
            if end <= *cursor {
                shown = Shown::Covered;
                return;
            }
            *cursor = end;
            if let Ok(hit) = HitRecord::decode(payload) {
                shown = Shown::Yes;
                each(end, hit);
            }
        };
        let next = match &mut open.reading {
            Reading::Live { log, .. } => log.next(&mut show),
            Reading::Old { scan, .. } => match scan.next(&mut self.recovery, &mut show) {
                Ok(Some(())) => LogStep::Record(()),
                Ok(None) => LogStep::End,
                Err(error) => return self.abandon(&error),
            },
        };
        match next {
            LogStep::Record(()) => match shown {
                Shown::Yes => ReadStep::Shown,
                Shown::Covered => ReadStep::Passed,
                Shown::Undecodable => {
                    self.recovery.undecodable_records += 1;
                    ReadStep::Passed
                }
            },
            LogStep::Damaged(bytes) => {
                self.recovery.holes += 1;
                self.recovery.torn_bytes += bytes as u64;
                tracing::error!(bytes, "skipped a damaged journal record");
                ReadStep::Passed
            }
            LogStep::Garbage => {
                if !self.garbage_reported {
                    self.garbage_reported = true;
                    tracing::error!("another program wrote to the journal: restart to read past it");
                }
                ReadStep::Waits
            }
            LogStep::Pending => ReadStep::Waits,
            LogStep::End => {
                self.finish();
                ReadStep::Passed
            }
        }
    }

    /// Opens the next segment unless one is open; false if there is none.
    fn open_next(&mut self) -> bool {
        while self.open.is_none() {
            if self.at == self.segments.len() {
                let last = self.segments.back().map(|segment| segment.source.sequence());
                let Some(segment) = self.shared.live_after(last) else { return false };
                self.segments.push_back(Unreleased {
                    source: Source::Live(segment),
                    last_record: None,
                    reported: false,
                });
            }
            let source = &self.segments[self.at].source;
            let base = source.base();
            let reading = match source {
                Source::Live(segment) => {
                    Reading::Live { log: LogReader::new(Arc::clone(segment)), segment: Arc::clone(segment) }
                }
                Source::Old(old) => match Scan::open(old) {
                    Ok(scan) => Reading::Old { scan, before: self.recovery },
                    Err(error) => {
                        self.abandon(&error);
                        continue;
                    }
                },
            };
            self.open = Some(Open { reading, base, last_record: Position(0) });
        }
        true
    }

    /// Closes a segment that has been read to its end.
    fn finish(&mut self) {
        let Some(open) = self.open.take() else { return };
        let segment = &mut self.segments[self.at];
        segment.last_record = Some(open.last_record);
        match (&open.reading, &segment.source) {
            (Reading::Live { segment, log }, _) => segment.mark_read(log.offset()),
            (Reading::Old { before, .. }, Source::Old(_)) if segment.reported => {
                self.recovery = *before;
            }
            (Reading::Old { before, .. }, Source::Old(old)) => {
                segment.reported = true;
                let holes = self.recovery.holes - before.holes;
                let torn_bytes = self.recovery.torn_bytes - before.torn_bytes;
                if holes > 0 {
                    let path = old.path.display();
                    tracing::warn!(%path, holes, torn_bytes, "skipped torn journal records");
                }
            }
            (Reading::Old { .. }, Source::Live(_)) => {}
        }
        self.at += 1;
        // Deleted, it may be mapped by nobody: then its blocks are free, whatever the file system.
        drop(open);
        self.delete_consumed();
    }

    /// Leaves an old segment in place that the disk does not give back.
    fn abandon(&mut self, error: &io::Error) -> ReadStep {
        self.open = None;
        self.recovery.unreadable_segments += 1;
        if let Some(Unreleased { source: Source::Old(old), .. }) = self.segments.remove(self.at) {
            let path = old.path.display();
            tracing::error!(%path, %error, "can't read a journal segment: it stays in place");
        }
        ReadStep::Passed
    }

    fn delete_consumed(&mut self) {
        let mut deleted = false;
        while let Some(Unreleased { source, last_record: Some(last_record), .. }) = self.segments.front() {
            if *last_record > self.released {
                break;
            }
            let removed = match source {
                Source::Old(old) => self.shared.delete(&old.path, old.file_bytes),
                Source::Live(segment) => self.shared.delete_live(segment),
            };
            if let Err(error) = removed {
                // Tried again with every batch that is counted, and told once.
                if !std::mem::replace(&mut self.stuck_reported, true) {
                    let path = self.shared.directory.display();
                    tracing::warn!(%path, %error, "can't delete counted journal segments: retrying");
                }
                break;
            }
            self.stuck_reported = false;
            self.segments.pop_front();
            self.at = self.at.saturating_sub(1);
            deleted = true;
        }
        if deleted {
            self.shared.room_was_made();
        }
    }

    fn tell_progress(&self) {
        let position = match &self.open {
            Some(Open { reading: Reading::Live { segment, log }, .. }) => {
                segment.mark_read(log.offset());
                segment.position(log.offset())
            }
            _ => self.cursor,
        };
        self.shared.mark_read(position);
    }
}

enum ReadStep {
    Shown,
    Passed,
    Waits,
}

enum Shown {
    Yes,
    Covered,
    Undecodable,
}
