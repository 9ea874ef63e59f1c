//! The hit journal: where a redirect writes its hit before it is answered.
//!
//! The journal is a directory of memory-mapped segment files of one size. An append is one atomic addition and a copy,
//! without a lock, an allocation or a system call. The page cache keeps appended records if the process is killed. A
//! periodic flush bounds the loss in a power cut. Positions grow over the node's whole life: a process never appends to
//! segments of an earlier process, but only reads and then deletes them.
//!
//! On copy-on-write file systems (btrfs, ZFS), allocated blocks do not guarantee space on a full disk. Use another file
//! system for the journal.

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
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Thread;
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;

use self::append_log::Full;
use self::backoff::{AppendBackoff, is_full};
use self::format::{RecordLayout, SEGMENT_HEADER_BYTES, SegmentHeader};
use self::reader::JournalReader;
use self::record::{HitRecord, hit_id};
use self::recovery::{LOCK_FILE, inspect_directory, segment_path};
use self::segment::{Prepare, Segment, free_blocks};
use self::stats::DiskUse;
use self::upkeep::JournalUpkeep;
use crate::domain::hit::{HitCursor, HitId, NodeId, Position};
use crate::locks::lock;
use crate::threads::PerThread;

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
    #[error(
        "can't read the journal segment {}: a later release wrote it (format version {version}), start that release",
        path.display()
    )]
    LaterRelease { path: PathBuf, version: u32 },
}

/// The parts of an open journal. Each part has its own owner.
#[derive(Debug)]
pub struct Journal {
    /// For all threads that answer redirects; clone it.
    pub writer: JournalWriter,
    /// For the hit counter.
    pub reader: JournalReader,
    /// Starts the background threads.
    pub upkeep: JournalUpkeep,
}

/// A journal's directory, locked for this process. The lock proves that earlier processes of this node have ended, so
/// this process may take over whatever belongs to the node.
pub struct LockedDirectory {
    directory: PathBuf,
    lock: DirectoryLock,
}

/// Locks the journal's directory for this process, and creates it if it does not exist.
///
/// # Errors
/// If the directory can't be used, or another process uses it.
pub fn lock_directory(directory: &Path) -> Result<LockedDirectory, JournalError> {
    let unusable = |source| JournalError::Directory { path: directory.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(unusable)?;
    Ok(LockedDirectory { directory: directory.to_owned(), lock: DirectoryLock::take(directory)? })
}

/// Locks and opens the journal in `directory`; see [`lock_directory`] and [`LockedDirectory::open`].
///
/// # Errors
/// The errors of both.
pub fn open(
    directory: &Path,
    settings: &JournalSettings,
    node: NodeId,
    cursor: impl Into<HitCursor>,
) -> Result<Journal, JournalError> {
    lock_directory(directory)?.open(settings, node, cursor)
}

impl LockedDirectory {
    /// How many hits of the node are behind the position up to which the store counts them.
    ///
    /// # Errors
    /// If the directory or a segment can't be read, or a later release wrote one.
    pub fn uncounted_hits(&self, node: NodeId, counted: Position) -> Result<u64, JournalError> {
        recovery::count_records(&self.directory, node, counted)
    }

    /// Opens the journal.
    ///
    /// The reader starts behind `cursor.counted`, the position up to which the store counts hits. New positions are
    /// above `cursor.begun` and above all positions of old segments. Damaged and foreign files are left in place and
    /// reported by [`JournalReader::recovery`].
    ///
    /// # Errors
    /// If a setting is invalid, the directory can't be read or written, or a later release wrote a segment. A full disk
    /// is not an error here: appends fail then.
    pub fn open(
        self,
        settings: &JournalSettings,
        node: NodeId,
        cursor: impl Into<HitCursor>,
    ) -> Result<Journal, JournalError> {
        let Self { directory, lock } = self;
        let HitCursor { counted: cursor, begun } = cursor.into();
        check(settings)?;
        let found = inspect_directory(&directory, node)?;
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
            appended: PerThread::default(),
            disk: DiskUse::default(),
            read_upto: AtomicU64::new(cursor.0),
            left_upto: AtomicU64::new(found.segments.iter().map(|old| old.header.end().0).max().unwrap_or(0)),
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
        // If there is no space, appends try again.
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

/// A lock on the directory. Without it, two processes would assign the same positions twice. The kernel releases it
/// when the process ends, for whatever reason.
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
        // Closing the file does not release the lock while a forked process has the file open.
        let _ = self.0.unlock();
    }
}

/// Appends hits to the journal. Clones are cheap; each thread has its own.
#[derive(Clone, Debug)]
pub struct JournalWriter {
    shared: Arc<SharedJournal>,
}

impl JournalWriter {
    /// Appends a hit and returns the position where its record ends. After `Ok`, the hit survives the end of the
    /// process.
    ///
    /// # Errors
    /// If there is no space. The hit is then not recorded, but added to [`JournalStats::not_recorded`]; the first such
    /// failure is logged. The redirect is answered nevertheless.
    pub fn append(&self, hit: &HitRecord<'_>) -> Result<Position, NotRecorded> {
        let len = hit.encoded_len();
        loop {
            let active = self.shared.active.load();
            let full = match active.as_deref() {
                Some(segment) => match segment.append(len, |out| hit.encode(out)) {
                    Ok(end) => {
                        self.shared.appended.own().fetch_add(1, Ordering::Relaxed);
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

    pub fn stats(&self) -> JournalStats {
        self.shared.stats()
    }
}

/// State that writers, reader and background threads share.
#[derive(Debug)]
struct SharedJournal {
    /// The segment for appends; none while there is no space for one.
    active: ArcSwapOption<Segment>,
    pub rotation: Mutex<Rotation>,
    /// The segments of this process that are not deleted yet. The active segment is the last one.
    live: Mutex<VecDeque<Arc<Segment>>>,
    pub backoff: AppendBackoff,
    appended: PerThread<AtomicU64>,
    disk: DiskUse,
    read_upto: AtomicU64,
    /// The end of the segments that earlier processes left; once they are read, that of their records.
    left_upto: AtomicU64,
    /// Whether files were created or deleted since the directory was last synced.
    pub directory_changed: AtomicBool,
    /// The thread that creates spare segments.
    pub upkeep: OnceLock<Thread>,
    /// The thread that creates pages ahead of the writers.
    pub page_maker: OnceLock<Thread>,
    pub directory: PathBuf,
    pub settings: JournalSettings,
    node: NodeId,
    _lock: DirectoryLock,
}

/// State that changes when the next segment becomes active.
#[derive(Debug)]
pub(super) struct Rotation {
    /// The next active segment, created ahead.
    pub spare: Option<Arc<Segment>>,
    next_sequence: u64,
    next_base: Position,
}

impl SharedJournal {
    /// Replaces the active segment with the next one. `full` is the sequence of the segment that the caller found full;
    /// `None` if there was no active segment.
    #[cold]
    fn rotate(&self, full: Option<u64>) -> Result<(), NotRecorded> {
        self.backoff.check()?;
        let mut rotation = lock(&self.rotation);
        if self.active.load().as_deref().map(|segment| segment.header().sequence) != full {
            // Another writer has replaced it already.
            return Ok(());
        }
        self.backoff.check()?;
        let next = match rotation.spare.take() {
            Some(spare) => Ok(spare),
            None => self.create(&mut rotation, Prepare::Now),
        };
        match next {
            Ok(segment) => {
                // The reader has to find the segment before a writer appends to it.
                lock(&self.live).push_back(Arc::clone(&segment));
                self.active.store(Some(segment));
                self.backoff.end();
                self.wake_page_maker();
                self.wake_upkeep();
                Ok(())
            }
            Err(cause) => {
                // Without an active segment, writers no longer add to the tail of the full one.
                self.active.store(None);
                self.backoff.start(cause);
                Err(cause)
            }
        }
    }

    /// Creates a segment if the disk budget and the disk allow it.
    pub fn create(&self, rotation: &mut Rotation, prepare: Prepare) -> Result<Arc<Segment>, NotRecorded> {
        let capacity = self.settings.segment_bytes;
        let in_use = self.disk.bytes.load(Ordering::Relaxed);
        if in_use + capacity > self.settings.disk_budget {
            return Err(NotRecorded::BudgetFull);
        }
        let header = SegmentHeader {
            layout: RecordLayout::WRITTEN,
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

    /// The segment for appends.
    pub fn active(&self) -> Option<Arc<Segment>> {
        self.active.load_full()
    }

    /// The segments of this process, oldest first.
    pub fn live(&self) -> Vec<Arc<Segment>> {
        lock(&self.live).iter().cloned().collect()
    }

    /// The first segment of this process whose sequence is higher than `sequence`.
    pub fn live_after(&self, sequence: Option<u64>) -> Option<Arc<Segment>> {
        let live = lock(&self.live);
        live.iter().find(|segment| Some(segment.header().sequence) > sequence).cloned()
    }

    /// Deletes a segment of this process that was read to its end. No append to it can succeed any more, even if no
    /// other segment is active yet.
    pub fn delete_live(&self, segment: &Arc<Segment>) -> io::Result<()> {
        lock(&self.live).retain(|live| !Arc::ptr_eq(live, segment));
        self.delete(segment.path(), segment.header().capacity)
    }

    /// Deletes a segment's file and subtracts its bytes from the disk use.
    pub fn delete(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path);
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // If the file has another hard link, such as one of a backup, its blocks are still in use.
        let _ = file.map(|file| file.metadata().is_ok_and(|left| left.nlink() == 0).then(|| free_blocks(&file, bytes)));
        self.disk.remove(bytes);
        self.directory_changed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Gives a segment's file another name.
    pub fn rename(&self, path: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(path, to)?;
        self.directory_changed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Space was freed, so writers need not wait before they try again.
    pub fn space_was_freed(&self) {
        self.backoff.retry_at_once();
        self.wake_upkeep();
    }

    pub fn mark_read(&self, position: Position) {
        self.read_upto.store(position.0, Ordering::Relaxed);
    }

    /// All segments that earlier processes left are read; their records end here.
    pub fn mark_left_read(&self, position: Position) {
        self.left_upto.store(position.0, Ordering::Relaxed);
    }

    fn stats(&self) -> JournalStats {
        let left_upto = Position(self.left_upto.load(Ordering::Relaxed));
        let ready_bytes =
            self.active().map_or(0, |segment| segment.ready_upto().saturating_sub(segment.reserved()) as u64);
        let written_upto = lock(&self.live).back().map_or(left_upto, |segment| segment.position(segment.reserved()));
        JournalStats {
            appended: self.appended.all().map(|count| count.load(Ordering::Relaxed)).sum(),
            not_recorded: self.backoff.hits_not_recorded(),
            bytes_on_disk: self.disk.bytes.load(Ordering::Relaxed),
            disk_budget: self.settings.disk_budget,
            segments: self.disk.segments.load(Ordering::Relaxed),
            unread_bytes: written_upto.0.saturating_sub(self.read_upto.load(Ordering::Relaxed)),
            ready_bytes,
        }
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
