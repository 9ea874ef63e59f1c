//! What a node notes for live streams where no other node shares its store: for itself, once it has restarted.
//!
//! Notes are appended to files. Notes of hits are synced, so that even after a power cut every counted hit is noted. If a note can't be
//! written, all notes are deleted: the next process life then knows no listeners, and tells returning clients that hits may be missing.
//! Files are deleted some seconds after their notes have expired, and nothing is written while nobody listens.

use std::collections::{HashSet, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use uuid::Uuid;

use super::StoreError;
use super::hit_streams::{HitStreamStore, LISTENERS_KEPT_SECONDS, NotedHits, NotesReadUpto};
use super::records::live_hits::{decode, decode_subject, encode, encode_subject};
use crate::domain::hit::{HitSubject, NodeId};
use crate::domain::live_hit::LiveEntry;
use crate::locks::lock;

/// For how long notes are kept.
const KEPT_FOR: Duration = Duration::from_secs(LISTENERS_KEPT_SECONDS);
/// A file is written to for so long, and has at most so many bytes before the last note.
const WRITTEN_FOR: Duration = Duration::from_secs(30);
const FILE_BYTES: usize = 8 << 20;
/// The most files: 5,000 hits a second for 90 s.
const MAX_FILES: usize = 16;
/// The length and the checksum of a note.
const HEAD_BYTES: usize = 8;
/// All lives before this one.
const LIVES_BEFORE: Uuid = Uuid::nil();

const HITS: u8 = 1;
const LISTENER: u8 = 2;

/// The notes of this node.
pub struct NotesOnDisk {
    directory: PathBuf,
    opened_at: Instant,
    before: Mutex<NotesBefore>,
    files: Arc<Mutex<NoteFiles>>,
}

/// What earlier lives have noted.
#[derive(Default)]
struct NotesBefore {
    subjects: HashSet<HitSubject>,
    hits: Vec<NotedHits>,
}

#[derive(Default)]
struct NoteFiles {
    /// The number of the last file.
    last: u64,
    open: Option<OpenFile>,
    /// Files that are not written to any more, oldest first.
    closed: VecDeque<(u64, Instant)>,
}

struct OpenFile {
    file: File,
    began: Instant,
    written_at: Instant,
    bytes: usize,
}

impl NotesOnDisk {
    /// Reads what earlier lives have noted in a directory. It need not exist.
    pub fn open(directory: PathBuf) -> Self {
        let (mut before, mut files) = (NotesBefore::default(), NoteFiles::default());
        let opened_at = Instant::now();
        for number in numbers_of(&directory) {
            files.last = number;
            files.closed.push_back((number, opened_at));
            // A file that can't be read is as one that is not there.
            if let Err(error) = before.read(&file_of(&directory, number)) {
                tracing::debug!(%error, "can't read notes of live streams");
            }
        }
        Self { directory, opened_at, before: Mutex::new(before), files: Arc::new(Mutex::new(files)) }
    }

    /// Appends notes, on a thread that may block.
    async fn append(&self, notes: Vec<u8>, durability: Durability) -> Result<(), StoreError> {
        let (files, directory) = (Arc::clone(&self.files), self.directory.clone());
        let append = move || {
            let mut files = lock(&files);
            if let Err(error) = files.append(&directory, &notes, durability) {
                tracing::debug!(%error, "can't write notes of live streams");
                files.delete_all(&directory);
            }
        };
        tokio::task::spawn_blocking(append).await.map_err(|error| StoreError::Unavailable(error.to_string()))
    }

    /// What earlier lives have noted, while it is kept.
    fn before(&self) -> MutexGuard<'_, NotesBefore> {
        let mut before = lock(&self.before);
        if self.opened_at.elapsed() >= KEPT_FOR {
            *before = NotesBefore::default();
        }
        before
    }

    fn files(&self) -> MutexGuard<'_, NoteFiles> {
        lock(&self.files)
    }
}

/// What notes survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    /// The end of the process.
    Written,
    /// A power cut.
    Synced,
}

#[async_trait]
impl HitStreamStore for NotesOnDisk {
    async fn note_listeners(&self, to: Vec<HitSubject>) -> Result<(), StoreError> {
        let mut notes = Vec::new();
        for subject in to {
            push_note(&mut notes, LISTENER, &encode_subject(subject));
        }
        self.append(notes, Durability::Written).await
    }

    async fn listened_subjects(&self) -> Result<Vec<HitSubject>, StoreError> {
        self.files().drop_expired(&self.directory);
        Ok(self.before().subjects.iter().copied().collect())
    }

    async fn note_live_hits(&self, node: NodeId, entries: Vec<LiveEntry>) -> Result<(), StoreError> {
        let mut notes = Vec::new();
        push_note(&mut notes, HITS, &encode(node, entries)?);
        self.append(notes, Durability::Synced).await
    }

    async fn live_hits(&self, after: Vec<NotesReadUpto>) -> Result<Vec<NotedHits>, StoreError> {
        let read = after.iter().find(|read| read.life == LIVES_BEFORE).map_or(0, |read| read.number);
        Ok(self.before().hits.iter().filter(|noted| noted.upto.number > read).cloned().collect())
    }
}

impl NotesBefore {
    fn read(&mut self, path: &Path) -> io::Result<()> {
        let written = fs::metadata(path)?.modified()?;
        // If the clock was set back, the time is in the future.
        if written.elapsed().is_ok_and(|age| age >= KEPT_FOR) {
            return Ok(());
        }
        let bytes = fs::read(path)?;
        let mut rest = &bytes[..];
        // Behind a note that is cut off or damaged there is nothing that can be read.
        while let Some((kind, content)) = take_note(&mut rest) {
            match kind {
                LISTENER => self.subjects.extend(decode_subject(content).ok()),
                HITS => {
                    if let Ok((node, entries)) = decode(content) {
                        let number = self.hits.last().map_or(0, |noted| noted.upto.number) + 1;
                        self.hits.push(NotedHits { node, upto: NotesReadUpto { life: LIVES_BEFORE, number }, entries });
                    }
                }
                // Of a later release.
                _ => {}
            }
        }
        Ok(())
    }
}

impl NoteFiles {
    fn append(&mut self, directory: &Path, notes: &[u8], durability: Durability) -> io::Result<()> {
        let is_full = |open: &OpenFile| open.began.elapsed() >= WRITTEN_FOR || open.bytes >= FILE_BYTES;
        if self.open.as_ref().is_some_and(is_full) {
            self.close();
        }
        self.drop_expired(directory);
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
                self.last += 1;
                let path = file_of(directory, self.last);
                let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
                // Else the file itself may be gone after a power cut.
                File::open(directory)?.sync_all()?;
                let now = Instant::now();
                none.insert(OpenFile { file, began: now, written_at: now, bytes: 0 })
            }
        };
        (open.written_at, open.bytes) = (Instant::now(), open.bytes + notes.len());
        open.file.write_all(notes)?;
        if durability == Durability::Synced { open.file.sync_data() } else { Ok(()) }
    }

    fn delete_all(&mut self, directory: &Path) {
        self.close();
        for (number, _) in self.closed.drain(..) {
            if let Err(error) = fs::remove_file(file_of(directory, number)) {
                tracing::debug!(%error, "can't delete notes of live streams");
            }
        }
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.closed.push_back((self.last, open.written_at));
        }
    }

    /// Deletes files whose notes have all expired, and the oldest of too many.
    fn drop_expired(&mut self, directory: &Path) {
        if self.open.as_ref().is_some_and(|open| open.written_at.elapsed() >= KEPT_FOR) {
            self.close();
        }
        while let Some((number, written_at)) = self.closed.front()
            && (written_at.elapsed() >= KEPT_FOR || self.closed.len() >= MAX_FILES)
        {
            // What can't be deleted now is found at the next start.
            let _ = fs::remove_file(file_of(directory, *number));
            self.closed.pop_front();
        }
    }
}

fn push_note(notes: &mut Vec<u8>, kind: u8, content: &[u8]) {
    let length = u32::try_from(content.len() + 1).unwrap_or(u32::MAX);
    let mut sum = crc32fast::Hasher::new();
    sum.update(&[kind]);
    sum.update(content);
    notes.extend_from_slice(&length.to_le_bytes());
    notes.extend_from_slice(&sum.finalize().to_le_bytes());
    notes.push(kind);
    notes.extend_from_slice(content);
}

/// Takes the kind and the content of a note off the beginning; `None` if it is cut off or damaged.
fn take_note<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let [l0, l1, l2, l3, sum @ ..] = *head;
    let length = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).ok()?;
    let (note, rest) = rest.split_at_checked(length)?;
    if crc32fast::hash(note) != u32::from_le_bytes(sum) {
        return None;
    }
    *bytes = rest;
    note.split_first().map(|(kind, content)| (*kind, content))
}

fn file_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("notes-{number:012}"))
}

/// The numbers of the files in a directory, in order.
fn numbers_of(directory: &Path) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut numbers: Vec<u64> = names.filter_map(|name| name.strip_prefix("notes-")?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hit::Position;
    use crate::domain::key::KeyId;
    use crate::domain::live_hit::LiveEvent;

    const KEY: HitSubject = HitSubject::Key(KeyId(Uuid::from_u128(1)));
    const NODE: NodeId = NodeId(Uuid::from_u128(2));

    fn entries(position: u64) -> Vec<LiveEntry> {
        let event = LiveEvent::LeftOut(position);
        vec![LiveEntry { of: KEY, position: Position(position), after: None, event }]
    }

    fn positions(noted: &[NotedHits]) -> Vec<u64> {
        noted.iter().flat_map(|noted| &noted.entries).map(|entry| entry.position.0).collect()
    }

    #[tokio::test]
    async fn the_next_life_reads_what_was_noted() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("streams");
        let open = || NotesOnDisk::open(directory.clone());
        let first = open();
        assert!(!directory.exists());
        assert!(first.listened_subjects().await.unwrap().is_empty());
        first.note_listeners(vec![KEY]).await.unwrap();
        first.note_live_hits(NODE, entries(1)).await.unwrap();
        first.note_live_hits(NODE, entries(2)).await.unwrap();
        assert!(first.live_hits(vec![]).await.unwrap().is_empty());
        // It is killed; nothing is closed.
        let second = open();
        assert_eq!(second.listened_subjects().await.unwrap(), [KEY]);
        let noted = second.live_hits(vec![]).await.unwrap();
        assert_eq!((positions(&noted), noted[0].node), (vec![1, 2], NODE));
        assert_eq!(positions(&second.live_hits(vec![noted[0].upto]).await.unwrap()), [2]);
        second.note_live_hits(NODE, entries(3)).await.unwrap();
        // The last note is cut off.
        let path = file_of(&directory, 2);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, [&bytes[..], &bytes[..bytes.len() - 1]].concat()).unwrap();
        assert_eq!(positions(&open().live_hits(vec![]).await.unwrap()), [1, 2, 3]);
    }

    #[tokio::test]
    async fn when_a_note_cannot_be_written_there_are_none() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("streams");
        let notes = NotesOnDisk::open(directory.clone());
        notes.note_listeners(vec![KEY]).await.unwrap();
        notes.note_live_hits(NODE, entries(1)).await.unwrap();
        // As on a disk that is full.
        notes.files().open.as_mut().unwrap().file = File::open(file_of(&directory, 1)).unwrap();
        notes.note_live_hits(NODE, entries(2)).await.unwrap();
        assert!(NotesOnDisk::open(directory.clone()).listened_subjects().await.unwrap().is_empty());
        notes.note_listeners(vec![KEY]).await.unwrap();
        assert_eq!(NotesOnDisk::open(directory).listened_subjects().await.unwrap(), [KEY]);
    }

    #[tokio::test]
    async fn old_files_are_deleted() {
        let home = tempfile::tempdir().unwrap();
        let notes = NotesOnDisk::open(home.path().into());
        for round in 0..20 {
            notes.note_live_hits(NODE, entries(round)).await.unwrap();
            notes.files().close();
        }
        notes.listened_subjects().await.unwrap();
        assert_eq!(numbers_of(home.path()).len(), MAX_FILES - 1);
        let long_ago = Instant::now().checked_sub(KEPT_FOR).unwrap();
        notes.files().closed.iter_mut().for_each(|(_, written_at)| *written_at = long_ago);
        notes.listened_subjects().await.unwrap();
        assert!(numbers_of(home.path()).is_empty());
    }
}
