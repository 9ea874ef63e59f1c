//! The hit journal: where a redirect writes its hit before it is answered.
//!
//! A directory of segment files of one size, mapped into memory. Appending is one atomic add and a
//! copy, without a lock, an allocation or a system call; the page cache keeps what was appended if
//! the process is killed, and a flush on a timer bounds what a power cut takes. Positions grow over
//! the node's whole life: a start never appends to what an earlier life left, which is only read and
//! then deleted.
//!
//! On file systems that write a block anew instead of in its place (btrfs, ZFS), allocated blocks do
//! not promise room on a full disk; keep the journal on one of the others.

pub mod append_log;
mod backoff;
pub mod format;
pub mod notifier;
pub mod pages;
pub mod reader;
pub mod record;
pub mod recovery;
pub mod segment;
mod settings;
mod stats;
pub mod upkeep;

use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;

use self::append_log::Full;
use self::backoff::{AppendBackoff, is_full};
use self::format::{SEGMENT_HEADER_BYTES, SegmentHeader};
use self::reader::JournalReader;
use self::record::{HitRecord, hit_id};
use self::recovery::{LOCK_FILE, segment_path, survey};
use self::segment::{CacheLines, Prepare, Segment, free_blocks};
use self::stats::DiskUse;
use self::upkeep::JournalUpkeep;
use crate::domain::hit::{HitCursor, HitId, NodeId, Position};

pub use self::backoff::NotRecorded;
pub use self::recovery::files;
pub use self::settings::{JournalSettings, MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES};
pub use self::stats::JournalStats;

/// Why a journal can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("the journal's segment size of {0} bytes must be a multiple of 4096 between 4096 and 1 GiB")]
    SegmentBytes(u64),
    #[error("the journal's disk budget of {0} bytes must be at least two segments")]
    DiskBudget(u64),
    #[error("can't use the journal directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("the journal directory {} is in use by another process", path.display())]
    InUse { path: PathBuf },
}

/// The parts of an open journal, each for its own owner.
#[derive(Debug)]
pub struct Journal {
    /// For every thread that answers redirects.
    pub writer: JournalWriter,
    /// For the one thread that consumes hits.
    pub reader: JournalReader,
    /// For the owner of the background thread.
    pub upkeep: JournalUpkeep,
}

/// A journal's directory that no other process can open. Whatever belongs to the node whose journal it is may be taken over
/// from here on: an earlier process of that node has ended.
pub struct LockedDirectory {
    directory: PathBuf,
    lock: DirectoryLock,
}

/// Takes the journal in `directory`, which is made if it is not there, for this process.
///
/// # Errors
/// If the directory can't be used, or another process uses it.
pub fn lock_directory(directory: &Path) -> Result<LockedDirectory, JournalError> {
    let unusable = |source| JournalError::Directory { path: directory.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(unusable)?;
    Ok(LockedDirectory { directory: directory.to_owned(), lock: DirectoryLock::take(directory)? })
}

/// Takes and opens the journal in `directory`; see [`lock_directory`] and [`LockedDirectory::open`].
///
/// # Errors
/// Those of both.
pub fn open(
    directory: &Path,
    settings: &JournalSettings,
    node: NodeId,
    cursor: impl Into<HitCursor>,
) -> Result<Journal, JournalError> {
    lock_directory(directory)?.open(settings, node, cursor)
}

impl LockedDirectory {
    /// Opens the journal.
    ///
    /// The reader starts behind `cursor.counted`: the highest position whose hits are in the store. Positions
    /// given from now on are above `cursor.begun`, and above all that old segments hold. What is damaged or foreign
    /// is reported ([`JournalReader::recovery`]) and left in place.
    ///
    /// # Errors
    /// If the settings make no sense, or the directory can't be read or written. A full disk is none: appends say so.
    pub fn open(
        self,
        settings: &JournalSettings,
        node: NodeId,
        cursor: impl Into<HitCursor>,
    ) -> Result<Journal, JournalError> {
        let Self { directory, lock } = self;
        let HitCursor { counted: cursor, begun } = cursor.into();
        check(settings)?;
        let unusable = |source| JournalError::Directory { path: directory.clone(), source };
        let found = survey(&directory, node).map_err(unusable)?;
        let above = found.segments.iter().map(|old| old.header.end()).fold(cursor.max(begun), Ord::max);
        let shared = Arc::new(SharedJournal {
            active: ArcSwapOption::empty(),
            rotation: Mutex::new(Rotation {
                spare: None,
                next_sequence: found.next_sequence,
                next_base: Position(above.0.next_multiple_of(SEGMENT_HEADER_BYTES as u64)),
            }),
            live: Mutex::default(),
            backoff: AppendBackoff::new(settings.retry_interval),
            appended: CacheLines::default(),
            disk: DiskUse::default(),
            read_upto: AtomicU64::new(cursor.0),
            directory_changed: AtomicBool::new(false),
            upkeep: OnceLock::new(),
            page_maker: OnceLock::new(),
            directory,
            settings: *settings,
            node,
            _lock: lock,
        });
        for old in &found.segments {
            shared.disk.add(old.file_bytes);
        }
        let reader = JournalReader::new(Arc::clone(&shared), cursor, found.segments, found.report);
        let upkeep = JournalUpkeep::new(Arc::clone(&shared));
        if let Err(NotRecorded::Disk { os_error }) = upkeep.prepare_spare()
            && !is_full(os_error)
        {
            let source = io::Error::from_raw_os_error(os_error);
            return Err(JournalError::Directory { path: shared.directory.clone(), source });
        }
        // Where there is no room, appends try again.
        let _ = shared.rotate(None);
        Ok(Journal { writer: JournalWriter { shared }, reader, upkeep })
    }
}

fn check(settings: &JournalSettings) -> Result<(), JournalError> {
    let segment = settings.segment_bytes;
    if !(MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&segment) || !segment.is_multiple_of(4096) {
        return Err(JournalError::SegmentBytes(segment));
    }
    if settings.disk_budget / 2 < segment {
        return Err(JournalError::DiskBudget(settings.disk_budget));
    }
    Ok(())
}

/// The hold on a directory. Two journals in one would give the same positions twice. The kernel drops
/// it with the process, however that ends.
#[derive(Debug)]
struct DirectoryLock(File);

impl DirectoryLock {
    fn take(directory: &Path) -> Result<Self, JournalError> {
        let unusable = |source| JournalError::Directory { path: directory.to_owned(), source };
        let path = directory.join(LOCK_FILE);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(JournalError::InUse { path: directory.to_owned() }),
            Err(TryLockError::Error(source)) => Err(unusable(source)),
        }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing alone would not do while a process that was just forked has the file open as well.
        let _ = self.0.unlock();
    }
}

/// Appends hits to the journal; cheap to clone, one for each thread.
#[derive(Clone, Debug)]
pub struct JournalWriter {
    shared: Arc<SharedJournal>,
}

impl JournalWriter {
    /// Appends a hit, and answers where its record ends. Once this has returned `Ok`, the hit survives the process.
    ///
    /// # Errors
    /// If there is no room. The hit is not recorded, but counted in [`JournalStats::not_recorded`],
    /// and logged; the redirect goes on.
    pub fn append(&self, hit: &HitRecord<'_>) -> Result<Position, NotRecorded> {
        let len = hit.encoded_len();
        loop {
            let active = self.shared.active.load();
            let full = match active.as_deref() {
                Some(segment) => match segment.append(len, |out| hit.encode(out)) {
                    Ok(end) => {
                        self.shared.appended.0.fetch_add(1, Ordering::Relaxed);
                        if segment.is_to_wake(end) {
                            self.shared.wake_page_maker();
                        }
                        return Ok(segment.position(end));
                    }
                    Err(Full) => Some(segment.header().sequence),
                },
                None => None,
            };
            drop(active);
            self.shared.rotate(full).inspect_err(|_| self.shared.backoff.count_hit())?;
        }
    }

    /// The id of the hit whose record ends at `position`.
    pub fn hit_id(&self, position: Position, at_ms: u64) -> HitId {
        hit_id(self.shared.node, position, at_ms)
    }

    /// What the journal has done since it was opened, and what it holds.
    pub fn stats(&self) -> JournalStats {
        self.shared.stats()
    }
}

/// What writers, reader and upkeep have in common.
#[derive(Debug)]
struct SharedJournal {
    /// Where to append; none while there is no room for a segment.
    active: ArcSwapOption<Segment>,
    pub rotation: Mutex<Rotation>,
    /// The segments of this life that are not deleted yet, the active one last.
    live: Mutex<VecDeque<Arc<Segment>>>,
    pub backoff: AppendBackoff,
    appended: CacheLines<AtomicU64>,
    disk: DiskUse,
    read_upto: AtomicU64,
    /// Whether files came or went since the directory was last brought to the disk.
    pub directory_changed: AtomicBool,
    /// Who prepares the next spare segment.
    pub upkeep: OnceLock<Thread>,
    /// Who makes pages ready ahead of the writers.
    pub page_maker: OnceLock<Thread>,
    pub directory: PathBuf,
    pub settings: JournalSettings,
    node: NodeId,
    _lock: DirectoryLock,
}

/// What changes when one segment follows another.
#[derive(Debug)]
pub(super) struct Rotation {
    /// The next active segment, made ahead.
    pub spare: Option<Arc<Segment>>,
    next_sequence: u64,
    next_base: Position,
}

impl SharedJournal {
    /// Puts the next segment in the place of the one with sequence `full`, or of none.
    #[cold]
    fn rotate(&self, full: Option<u64>) -> Result<(), NotRecorded> {
        self.backoff.check()?;
        let mut rotation = lock_of(&self.rotation);
        if self.active.load().as_deref().map(|segment| segment.header().sequence) != full {
            // Another writer was faster.
            return Ok(());
        }
        self.backoff.check()?;
        let next = match rotation.spare.take() {
            Some(spare) => Ok(spare),
            None => self.create(&mut rotation, Prepare::Now),
        };
        match next {
            Ok(segment) => {
                // First where the reader looks, then where the writers look.
                lock_of(&self.live).push_back(Arc::clone(&segment));
                self.active.store(Some(segment));
                self.backoff.end();
                self.wake_page_maker();
                self.wake_upkeep();
                Ok(())
            }
            Err(cause) => {
                // With none in its place, writers no longer add to the full one's tail.
                self.active.store(None);
                self.backoff.start(cause);
                Err(cause)
            }
        }
    }

    /// Makes a segment if the budget and the disk allow it.
    pub fn create(&self, rotation: &mut Rotation, prepare: Prepare) -> Result<Arc<Segment>, NotRecorded> {
        let capacity = self.settings.segment_bytes;
        let in_use = self.disk.bytes.load(Ordering::Relaxed);
        if in_use + capacity > self.settings.disk_budget {
            return Err(NotRecorded::BudgetFull);
        }
        let header = SegmentHeader {
            sequence: rotation.next_sequence,
            base: rotation.next_base,
            capacity,
            node: self.node,
            created_at_ms: unix_ms(),
        };
        let path = segment_path(&self.directory, header.sequence);
        let segment = Segment::create(path, header, prepare).map_err(|e| NotRecorded::disk(&e))?;
        rotation.next_sequence += 1;
        rotation.next_base = header.end();
        self.disk.add(capacity);
        self.directory_changed.store(true, Ordering::Relaxed);
        Ok(Arc::new(segment))
    }

    fn wake_upkeep(&self) {
        if let Some(upkeep) = self.upkeep.get() {
            upkeep.unpark();
        }
    }

    #[cold]
    pub fn wake_page_maker(&self) {
        if let Some(page_maker) = self.page_maker.get() {
            page_maker.unpark();
        }
    }

    /// The segment that is appended to.
    pub fn active(&self) -> Option<Arc<Segment>> {
        self.active.load_full()
    }

    /// The segments of this life, oldest first.
    pub fn live(&self) -> Vec<Arc<Segment>> {
        lock_of(&self.live).iter().cloned().collect()
    }

    /// The first segment of this life above `sequence`.
    pub fn live_after(&self, sequence: Option<u64>) -> Option<Arc<Segment>> {
        let live = lock_of(&self.live);
        live.iter().find(|segment| Some(segment.header().sequence) > sequence).cloned()
    }

    /// Deletes a segment of this life that has been read to its end, so that no append can succeed
    /// there any more, even if none has followed it yet.
    pub fn delete_live(&self, segment: &Arc<Segment>) -> io::Result<()> {
        lock_of(&self.live).retain(|live| !Arc::ptr_eq(live, segment));
        self.delete(segment.path(), segment.header().capacity)
    }

    /// Deletes a segment's file, and gives its bytes back to the budget.
    pub fn delete(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path);
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Somebody's copy may be the same file by another name.
        let _ = file.map(|file| file.metadata().is_ok_and(|left| left.nlink() == 0).then(|| free_blocks(&file, bytes)));
        self.disk.remove(bytes);
        self.directory_changed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Lets writers try again at once: there is room.
    pub fn room_was_made(&self) {
        self.backoff.retry_at_once();
        self.wake_upkeep();
    }

    pub fn mark_read(&self, position: Position) {
        self.read_upto.store(position.0, Ordering::Relaxed);
    }

    fn stats(&self) -> JournalStats {
        let ready_bytes =
            self.active().map_or(0, |segment| segment.ready_upto().saturating_sub(segment.reserved()) as u64);
        let written_upto =
            lock_of(&self.live).back().map_or(Position(0), |segment| segment.position(segment.reserved()));
        JournalStats {
            appended: self.appended.0.load(Ordering::Relaxed),
            not_recorded: self.backoff.hits_not_recorded(),
            bytes_on_disk: self.disk.bytes.load(Ordering::Relaxed),
            disk_budget: self.settings.disk_budget,
            segments: self.disk.segments.load(Ordering::Relaxed),
            unread_bytes: written_upto.0.saturating_sub(self.read_upto.load(Ordering::Relaxed)),
            ready_bytes,
        }
    }
}

/// No invariant of what these locks guard can be broken half-way, so a panic elsewhere is no reason
/// to stop recording hits.
pub(super) fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
