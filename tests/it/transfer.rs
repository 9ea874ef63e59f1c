//! Exports of a store to a file, and imports into another store.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use signpost::domain::breakdown::Dimension;
use signpost::domain::hit::{HitBatch, HitSubject, NodeId, OTHER_LABEL, Position, ServedCount};
use signpost::domain::link::Link;
use signpost::domain::vault::Vault;
use signpost::store::cql::migrate;
use signpost::store::cql::session::{self, ScyllaSettings};
use signpost::store::cql::transfer::ScyllaTransfer;
use signpost::store::embedded::EmbeddedStore;
use signpost::store::records::export::RecordV1;
use signpost::store::transfer::{ExportSource, Metric, Page, Record, Section, Sink, SinkError};
use signpost::store::{
    CountStore, CreateKeyError, KeyStore, Lifecycle, LinkStore, QuotaClaim, SharedNode, Store, StoreError,
};
use signpost::transfer::{self, Imported, TransferError, export, import};
use tempfile::TempDir;

use crate::store::samples::{
    DAY, batch, bots, counted, day, day_of, delivery, devices, enqueue, key, key_id, label, label_of, link,
    longest_link, month, node, noon, persons, private_of, short_id,
};
use crate::support::cluster::{cluster, fresh_keyspace_name};
use crate::support::keyspaces::Keyspace;
use crate::support::process::Program;

/// More than one page of each store.
const LINKS: u32 = 1_100;
/// Links with so many days and labels that an embedded store spreads them: more than a page of either.
const SPREAD: u32 = 11;

struct Ground {
    directory: TempDir,
}

impl Ground {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn store(&self, name: &str) -> EmbeddedStore {
        EmbeddedStore::open(&self.directory.path().join(name), 8 << 20).unwrap()
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("all.jsonl")
    }
}

/// Writes at least one record of each kind.
async fn fill(store: EmbeddedStore) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(store);
    store.put_if_absent("root_key", key_id(1).0.as_bytes().to_vec()).await.unwrap();
    let seal = Vault::new(&[7; 32]).unwrap().seal(&SystemRandom::new(), b"master key check", "signpost").unwrap();
    store.put_if_absent("master_key_check", seal.0).await.unwrap();
    store.create_key(key(1, &[]), None).await.unwrap();
    store.create_key(key(2, &[key_id(1)]), None).await.unwrap();
    let mut revoked = key(2, &[key_id(1)]);
    (revoked.revoked_at, revoked.revision) = (Some(noon()), 1);
    store.update_key(revoked).await.unwrap();
    store.note_key_use(vec![(key_id(1), noon())]).await.unwrap();
    let made = join_all((0..LINKS).map(|n| store.create_link(link(n, key_id(n % 3)), None))).await;
    assert!(made.iter().all(Result::is_ok));
    store.create_link(longest_link(LINKS), None).await.unwrap();

    let this = month("2026-11");
    let days = (0..LINKS)
        .map(|n| day(n, noon(), [10, u64::from(n), 0]))
        .chain([day(0, noon().minus(DAY), [0, 0, 9]), day(0, noon().minus(30 * DAY), [4, 0, 0])])
        .chain((1..100 * SPREAD).map(|n| day(1 + n % SPREAD, noon().minus(n / SPREAD * DAY), [0, 1, n.into()])));
    let spread = (0..100 * SPREAD).map(|n| {
        let at = noon().minus(n / SPREAD % 20 * DAY);
        label(1 + n % SPREAD, at, Dimension::City, &format!("a city of some name {}", n / SPREAD), 1)
    });
    let of_key = HitSubject::Key(key_id(1));
    let of_keys = [day_of(of_key, noon(), [persons(500), bots(20), persons(1)])];
    let labels = (0..LINKS)
        .map(|n| label(n, noon(), Dimension::City, "Zürich\n\"quoted\"", 2))
        .chain([
            label(0, noon(), Dimension::Referrer, OTHER_LABEL, 2),
            label(0, noon().minus(30 * DAY), Dimension::Country, "CH", 4),
            label_of(of_key, noon(), Dimension::Browser, "chrome", persons(100)),
            label_of(of_key, noon(), Dimension::Bot, "monitor", bots(20)),
            private_of(of_key, noon(), persons(9)),
        ])
        .chain(spread);
    let hits = HitBatch {
        days: counted(days.chain(of_keys), labels),
        served: vec![ServedCount { key: key_id(1), month: this, count: 4_000_000_000_000 }],
        ..batch(0, 70)
    };
    store.apply_hits(Arc::new(hits)).await.unwrap();
    let id = delivery(0, noon(), 0);
    enqueue(&store, [id]).await;
    store.claim_delivery_quota(vec![QuotaClaim { id, round: 0, month: this, limit: None }]).await.unwrap();
    store
}

/// All records of a store, in an order that is the same for all stores.
async fn all(source: &dyn ExportSource) -> Vec<String> {
    let mut found = Vec::new();
    for section in Section::ALL {
        let mut from = None;
        loop {
            let page = source.read_page(section, from.as_deref()).await.unwrap();
            found.extend(page.records.iter().map(|record| serde_json::to_string(&RecordV1::from(record)).unwrap()));
            from = page.next;
            if from.is_none() {
                break;
            }
        }
    }
    found.sort();
    found
}

/// What a cluster keeps for ever: quarters and sheets of days that are long ago are not written there.
fn lasting(records: Vec<String>) -> Vec<String> {
    let records = records.into_iter().filter(|record| !record.starts_with("{\"sheet\""));
    let without_quarters = |record: String| match record.split_once(",\"quarters\"") {
        Some((kept, _)) => format!("{kept}}}}}"),
        None => record,
    };
    records.map(without_quarters).collect()
}

/// A filled store to export.
async fn filled(ground: &Ground) -> EmbeddedStore {
    fill(ground.store("filled")).await.close().await;
    ground.store("filled")
}

/// An empty keyspace.
async fn keyspace() -> ScyllaTransfer {
    let cluster = cluster(1).await;
    let settings = ScyllaSettings::new(cluster.contact_points().to_vec(), fresh_keyspace_name());
    let copies = u32::try_from(cluster.replication_factor()).unwrap();
    let session = session::connect(&settings).await.unwrap();
    migrate::migrate(&session, &settings.keyspace, copies, None).await.unwrap();
    ScyllaTransfer::open(&settings).await.unwrap()
}

/// A store that fails after a number of writes.
struct Ending<'a>(&'a dyn Sink, AtomicUsize);

#[async_trait]
impl Sink for Ending<'_> {
    async fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.kept(name).await
    }

    async fn write(&self, records: Vec<Record>) -> Result<(), SinkError> {
        let left = self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map_err(|_| StoreError::Unavailable("ended".into()))?;
        self.0.write(records).await
    }
}

/// As [`Ending`], for reads.
struct Torn<'a>(&'a dyn ExportSource, AtomicUsize);

#[async_trait]
impl ExportSource for Torn<'_> {
    async fn read_page(&self, section: Section, from: Option<&str>) -> Result<Page, StoreError> {
        let left = self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map_err(|_| StoreError::Unavailable("ended".into()))?;
        self.0.read_page(section, from).await
    }

    async fn last_start(&self) -> Result<u64, StoreError> {
        self.0.last_start().await
    }

    async fn has_pending_deliveries(&self) -> Result<bool, StoreError> {
        self.0.has_pending_deliveries().await
    }
}

#[tokio::test]
async fn an_embedded_store_comes_over_whole() {
    let ground = Ground::new();
    let source = filled(&ground).await;
    let counts = export(&source, &ground.file(), noon()).await.unwrap();
    assert_eq!((counts.links, counts.keys), (u64::from(LINKS) + 1, 2));
    assert_eq!(fs::metadata(ground.file()).unwrap().permissions().mode() & 0o777, 0o600);

    let sink = ground.store("sink");
    assert_eq!(import(&sink, &ground.file()).await.unwrap(), Imported::Now(counts));
    let (before, after) = (all(&source).await, all(&sink).await);
    assert_eq!(before, after);
    // Expected values, so that two stores are not equal because both are empty.
    let usage = |metric, count| {
        let record = Record::Usage { metric, key: key_id(1), month: month("2026-11"), count };
        serde_json::to_string(&RecordV1::from(&record)).unwrap()
    };
    for record in [usage(Metric::HitsServed, 4_000_000_000_000), usage(Metric::WebhookDeliveries, 1)] {
        assert!(after.contains(&record), "{record}");
    }
    assert_eq!(import(&sink, &ground.file()).await.unwrap(), Imported::Before);
}

#[tokio::test]
async fn what_came_over_goes_on_being_counted() {
    let ground = Ground::new();
    let source = filled(&ground).await;
    export(&source, &ground.file(), noon()).await.unwrap();
    let sink = ground.store("sink");
    import(&sink, &ground.file()).await.unwrap();

    // The journal's hits that are in the counts are not counted again; later ones are.
    assert_eq!(sink.hit_cursor(node(1)).await.unwrap(), source.hit_cursor(node(1)).await.unwrap());
    let again = HitBatch { days: counted([day(20, noon(), [100, 0, 0])], []), ..batch(0, 70) };
    sink.apply_hits(Arc::new(again)).await.unwrap();
    let cursor = sink.hit_cursor(node(1)).await.unwrap().counted.0;
    let more = HitBatch { days: counted([day(20, noon(), [10, 0, 0])], []), ..batch(cursor, cursor + 5) };
    sink.apply_hits(Arc::new(more)).await.unwrap();
    assert_eq!(sink.link_hits(short_id(20), None).await.unwrap().days, [(noon().day(), devices([20, 20, 0]))]);

    let made = sink.create_link(link(LINKS + 1, key_id(0)), None).await.unwrap();
    assert_eq!(made, u64::from(LINKS.div_ceil(3)) + 1);
    assert!(sink.key_by_secret(key(1, &[]).secret_hash).await.unwrap().is_some());
    assert!(sink.key_by_secret(key(2, &[]).secret_hash).await.unwrap().is_none());
}

#[tokio::test]
async fn an_export_that_ended_early_goes_on_where_it_was() {
    let ground = Ground::new();
    let source = filled(&ground).await;
    for pages in [0, 1, 2, 4, 5] {
        let torn = export(&Torn(&source, AtomicUsize::new(pages)), &ground.file(), noon()).await;
        assert!(matches!(torn, Err(TransferError::Store(_))), "after {pages}: {torn:?}");
        // A crash leaves half a line.
        if let Ok(mut file) = OpenOptions::new().append(true).open(ground.file())
            && file.metadata().unwrap().len() > 0
        {
            std::io::Write::write_all(&mut file, b"{\"link\":{\"id\":\"00").unwrap();
        }
    }
    let lines = |path: &Path| fs::read_to_string(path).unwrap().lines().count();
    let torn = lines(&ground.file());
    export(&source, &ground.file(), noon()).await.unwrap();
    assert!(torn > 1_000, "nothing was kept of the tries before: {torn}");
    let sink = ground.store("sink");
    import(&sink, &ground.file()).await.unwrap();
    assert_eq!(all(&sink).await, all(&source).await);

    let complete = export(&source, &ground.file(), noon()).await;
    assert!(matches!(complete, Err(TransferError::Complete(_))), "{complete:?}");
}

/// A store that nodes are started on during its export.
struct Served<'a>(&'a dyn ExportSource, AtomicU64);

#[async_trait]
impl ExportSource for Served<'_> {
    async fn read_page(&self, section: Section, from: Option<&str>) -> Result<Page, StoreError> {
        self.0.read_page(section, from).await
    }

    async fn last_start(&self) -> Result<u64, StoreError> {
        Ok(self.1.fetch_add(1, Ordering::Relaxed))
    }

    async fn has_pending_deliveries(&self) -> Result<bool, StoreError> {
        self.0.has_pending_deliveries().await
    }
}

#[tokio::test]
async fn an_export_does_not_go_on_after_a_start() {
    let ground = Ground::new();
    let source = filled(&ground).await;
    let first_line = || fs::read_to_string(ground.file()).unwrap().lines().next().unwrap().to_owned();
    export(&Torn(&source, AtomicUsize::new(5)), &ground.file(), noon()).await.unwrap_err();
    let torn = first_line();
    export(&Torn(&source, AtomicUsize::new(1)), &ground.file(), noon()).await.unwrap_err();
    assert_eq!(first_line(), torn);

    // Two starts at one time count as two.
    for _ in 0..2 {
        let before = source.last_start().await.unwrap();
        source.note_start(noon()).await.unwrap();
        assert!(source.last_start().await.unwrap() > before);
    }
    let link = source.link_by_id(short_id(0)).await.unwrap().unwrap();
    source.delete_link(Link { updated_at: noon(), ..link }).await.unwrap();
    export(&source, &ground.file(), noon()).await.unwrap();
    assert_ne!(first_line(), torn);
    let sink = ground.store("sink");
    import(&sink, &ground.file()).await.unwrap();
    assert_eq!(all(&sink).await, all(&source).await);

    let file = ground.directory.path().join("served.jsonl");
    let served = export(&Served(&source, AtomicU64::new(1)), &file, noon()).await;
    assert!(matches!(served, Err(TransferError::Served)), "{served:?}");
}

#[tokio::test]
async fn an_import_whose_progress_cannot_be_noted_writes_nothing() {
    let ground = Ground::new();
    let source = filled(&ground).await;
    export(&source, &ground.file(), noon()).await.unwrap();
    // In the place of the file that the progress is written to.
    fs::create_dir(ground.directory.path().join("all.jsonl.progress.new")).unwrap();
    let sink = ground.store("sink");
    let refused = import(&sink, &ground.file()).await;
    assert!(matches!(refused, Err(TransferError::File { .. })), "{refused:?}");
    assert_eq!(all(&sink).await, Vec::<String>::new());
    assert_eq!(sink.kept("import").await.unwrap(), None);
}

#[tokio::test]
async fn an_export_does_not_go_on_with_the_file_of_another_store() {
    let ground = Ground::new();
    let source = filled(&ground).await;
    export(&Torn(&source, AtomicUsize::new(3)), &ground.file(), noon()).await.unwrap_err();
    let other = ground.store("other");
    let refused = export(&other, &ground.file(), noon()).await;
    assert!(matches!(refused, Err(TransferError::OtherStore(_))), "{refused:?}");

    fs::write(ground.file(), "a letter to my aunt\n").unwrap();
    fs::set_permissions(ground.file(), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = export(&source, &ground.file(), noon()).await;
    assert!(matches!(refused, Err(TransferError::NotAnExport(_))), "{refused:?}");
    assert_eq!(fs::metadata(ground.file()).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(fs::read_to_string(ground.file()).unwrap(), "a letter to my aunt\n");
}

#[tokio::test]
async fn an_import_that_ended_early_goes_on_where_it_was() {
    let ground = Ground::new();
    let source = filled(&ground).await;
    export(&source, &ground.file(), noon()).await.unwrap();
    let sink = ground.store("sink");
    import(&Ending(&sink, AtomicUsize::new(3)), &ground.file()).await.unwrap_err();
    assert!(sink.kept("root_key").await.unwrap().is_none(), "a store that is not whole has a root key");
    import(&Ending(&sink, AtomicUsize::new(2)), &ground.file()).await.unwrap_err();
    // The whole file takes more writes: so the import resumed.
    let (uninterrupted, most) = (ground.store("uninterrupted"), 1_000);
    let writes = Ending(&uninterrupted, AtomicUsize::new(most));
    import(&writes, &ground.file()).await.unwrap();
    let whole = most - writes.1.into_inner();
    import(&Ending(&sink, AtomicUsize::new(whole - 1)), &ground.file()).await.unwrap();
    assert_eq!(all(&sink).await, all(&source).await);

    // The progress of one store does not apply to another.
    let other = ground.store("other");
    import(&Ending(&other, AtomicUsize::new(3)), &ground.file()).await.unwrap_err();
    let third = ground.store("third");
    import(&third, &ground.file()).await.unwrap();
    assert_eq!(all(&third).await, all(&source).await);
}

#[tokio::test]
async fn what_comes_twice_changes_nothing() {
    let ground = Ground::new();
    let source = filled(&ground).await;
    export(&source, &ground.file(), noon()).await.unwrap();
    let sink = ground.store("sink");
    import(&Ending(&sink, AtomicUsize::new(4)), &ground.file()).await.unwrap_err();
    fs::remove_file(ground.directory.path().join("all.jsonl.progress")).unwrap();
    import(&sink, &ground.file()).await.unwrap();
    assert_eq!(all(&sink).await, all(&source).await);
}

/// The number of child keys is not exported: the import counts them.
#[tokio::test]
async fn keys_that_were_carried_count_against_the_limit_of_the_key_that_created_them() {
    let ground = Ground::new();
    let source = filled(&ground).await;
    for n in 3..6 {
        source.create_key(key(n, &[key_id(1)]), Some(3)).await.unwrap();
    }
    export(&source, &ground.file(), noon()).await.unwrap();
    let sink = ground.store("sink");
    import(&sink, &ground.file()).await.unwrap();
    for store in [&source, &sink] {
        let refused = store.create_key(key(7, &[key_id(1)]), Some(3)).await;
        assert!(matches!(refused, Err(CreateKeyError::QuotaExceeded { limit: 3, current: 3 })), "{refused:?}");
        store.create_key(key(7, &[key_id(1)]), Some(4)).await.unwrap();
    }
}

#[tokio::test]
async fn a_file_that_is_cut_or_changed_is_refused_before_anything_is_written() {
    let ground = Ground::new();
    let source = filled(&ground).await;
    export(&source, &ground.file(), noon()).await.unwrap();
    let whole = fs::read(ground.file()).unwrap();
    let sink = ground.store("sink");

    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for cut in [whole.len() - 1, last, last / 2] {
        fs::write(ground.file(), &whole[..cut]).unwrap();
        let refused = import(&sink, &ground.file()).await;
        assert!(matches!(refused, Err(TransferError::Incomplete(_))), "{cut}: {refused:?}");
    }
    let text = String::from_utf8(whole).unwrap();
    for changed in [
        text.replacen("example.com", "example.org", 1),
        text.replacen("\"count\":4000000000000", "\"count\":4000000000001", 1),
        text.clone() + "{}\n",
        text.lines().filter(|line| !line.contains("0000123")).fold(String::new(), |all, line| all + line + "\n"),
    ] {
        assert_ne!(changed, text);
        fs::write(ground.file(), changed).unwrap();
        let refused = import(&sink, &ground.file()).await;
        assert!(matches!(refused, Err(TransferError::Damaged { .. })), "{refused:?}");
    }
    fs::write(ground.file(), text.replacen("\"format\":2", "\"format\":3", 1)).unwrap();
    let refused = import(&sink, &ground.file()).await;
    assert!(matches!(refused, Err(TransferError::OtherFormat { found: 3, .. })), "{refused:?}");
    assert_eq!(all(&sink).await, Vec::<String>::new());
}

/// A changed file with a matching checksum.
fn summed_up(text: &str) -> String {
    let (lines, end) = text.trim_end().rsplit_once('\n').unwrap();
    let lines = format!("{lines}\n");
    let digits: Vec<String> =
        digest(&SHA256, lines.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let sum = digits.concat();
    let mut end: serde_json::Value = serde_json::from_str(end).unwrap();
    end["end"]["sha256"] = sum.into();
    format!("{lines}{end}\n")
}

#[tokio::test]
async fn invalid_records_are_listed_with_their_lines_and_nothing_is_imported() {
    let ground = Ground::new();
    let source = filled(&ground).await;
    export(&source, &ground.file(), noon()).await.unwrap();
    let whole = fs::read_to_string(ground.file()).unwrap();
    let sink = ground.store("sink");
    for (from, to, reason) in [
        ("https://example.com/some", "javascript:alert(1)//", "target"),
        ("https://example.com/some", "/relative", "target"),
        ("https://example.com/some", "https://example.com/a b", "target"),
        (r#"{\"order\":17}"#, "[17]", "data"),
        (r#"{\"order\":17}"#, r#"{\"order\": 17}"#, "data"),
        ("https://hooks.example.com/a", "file:///etc/passwd", "webhooks/0"),
        ("https://hooks.example.com/a", "https://u:p@hooks.example.com/a", "webhooks/0"),
        ("https://hooks.example.com/a", "https://hooks.example.com/b", "distinct"),
        ("\"0000003\"", "\"../../a\"", "short id"),
        ("\"key 2\"", "\"  \"", "name"),
        ("\"scopes\":63", "\"scopes\":255", "scopes"),
        ("\"count\":4000000000000", "\"count\":18446744073709551615", "count"),
        ("\"name\":\"master_key_check\"", "\"name\":\"import_done\"", "name"),
        ("\"webhook_secret\":[7,", "\"webhook_secret\":[7],\"x\":[7,", "not an encrypted secret"),
    ] {
        let changed = summed_up(&whole.replacen(from, to, 1));
        let line = whole.lines().position(|line| line.contains(from)).unwrap() as u64 + 1;
        assert_ne!(changed, whole, "{from}");
        fs::write(ground.file(), changed).unwrap();
        let refused = import(&sink, &ground.file()).await.unwrap_err();
        let TransferError::Faults { count: 1, first, .. } = &refused else { panic!("{to}: {refused:?}") };
        assert_eq!(first[0].line, line, "{refused}");
        assert!(reason == "short id" || first[0].reason.contains(reason), "{reason}: {refused}");
    }
    // Another key becomes the operator's.
    let second = whole.lines().find(|line| line.contains("\"key 2\"")).unwrap();
    let raised = second.replace("\"is_root\":false", "\"is_root\":true");
    let both = whole.replace(second, &raised).replacen("https://example.com/some", "ftp://example.com", 1);
    fs::write(ground.file(), summed_up(&both)).unwrap();
    let refused = import(&sink, &ground.file()).await.unwrap_err();
    assert!(matches!(&refused, TransferError::Faults { count: 2, .. }), "{refused:?}");
    assert!(refused.to_string().contains("is_root") && refused.to_string().lines().count() == 1, "{refused}");
    assert_eq!(all(&sink).await, Vec::<String>::new());
    fs::write(ground.file(), &whole).unwrap();
    import(&sink, &ground.file()).await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_cut_after_its_check_is_no_whole_import() {
    let ground = Ground::new();
    export(&filled(&ground).await, &ground.file(), noon()).await.unwrap();
    let checked = transfer::check(&ground.file()).unwrap();
    let whole = fs::read_to_string(ground.file()).unwrap();
    fs::write(ground.file(), &whole[..=whole.trim_end().rfind('\n').unwrap()]).unwrap();
    let sink = ground.store("sink");
    let cut = transfer::fill(&sink, checked).await;
    assert!(matches!(cut, Err(TransferError::Incomplete(_))), "{cut:?}");
    fs::write(ground.file(), &whole).unwrap();
    assert!(matches!(import(&sink, &ground.file()).await, Ok(Imported::Now(_))));
}

#[tokio::test]
async fn a_store_that_is_in_use_is_not_filled() {
    let ground = Ground::new();
    let source = filled(&ground).await;
    export(&source, &ground.file(), noon()).await.unwrap();
    let used = ground.store("used");
    used.put_if_absent("root_key", key_id(9).0.as_bytes().to_vec()).await.unwrap();
    let refused = import(&used, &ground.file()).await;
    assert!(matches!(refused, Err(TransferError::NotEmpty)), "{refused:?}");
    assert_eq!(all(&used).await.len(), 1);

    // Nor a store with an unfinished import of another file.
    let sink = ground.store("sink");
    import(&Ending(&sink, AtomicUsize::new(2)), &ground.file()).await.unwrap_err();
    fs::remove_file(ground.file()).unwrap();
    export(&source, &ground.file(), noon()).await.unwrap();
    let refused = import(&sink, &ground.file()).await;
    assert!(matches!(refused, Err(TransferError::OtherFile)), "{refused:?}");
}

#[tokio::test]
async fn a_store_whose_import_has_not_ended_is_neither_served_nor_exported() {
    let ground = Ground::new();
    export(&filled(&ground).await, &ground.file(), noon()).await.unwrap();
    let sink = ground.store("data/store");
    import(&Ending(&sink, AtomicUsize::new(2)), &ground.file()).await.unwrap_err();
    sink.close().await;
    drop(sink);
    let program = |arguments: &[&str]| Program::at(ground.directory.path()).arguments(arguments);
    for arguments in [&["serve"][..], &["export", "other.jsonl"]] {
        program(arguments).run().refused(&["the import into the store in", "data/store", "is unfinished", "again"]);
        assert_eq!(fs::read_dir(ground.directory.path().join("data")).unwrap().count(), 2, "the store and its links");
        assert!(!ground.directory.path().join("other.jsonl").exists());
    }
    let with_key = |arguments| program(arguments).set("SIGNPOST_MASTER_KEY", &STANDARD.encode([7; 32]));
    let imported = with_key(&["import", "all.jsonl"]).run();
    assert!(imported.code() == Some(0) && imported.stdout.starts_with("Imported 1101 links"), "{imported:?}");
    assert_eq!(with_key(&["serve"]).serve().terminate().code(), Some(0));
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_store_comes_over_to_a_cluster_and_back() {
    let ground = Ground::new();
    let source = filled(&ground).await;
    let there = lasting(all(&source).await);
    export(&source, &ground.file(), noon()).await.unwrap();

    let cluster = keyspace().await;
    import(&Ending(&cluster, AtomicUsize::new(4)), &ground.file()).await.unwrap_err();
    // Some records are imported twice.
    fs::remove_file(ground.directory.path().join("all.jsonl.progress")).unwrap();
    import(&cluster, &ground.file()).await.unwrap();
    assert_eq!(lasting(all(&cluster).await), there);
    assert_eq!(import(&cluster, &ground.file()).await.unwrap(), Imported::Before);

    let back = ground.directory.path().join("back.jsonl");
    export(&Torn(&cluster, AtomicUsize::new(5)), &back, noon()).await.unwrap_err();
    export(&cluster, &back, noon()).await.unwrap();
    let sink = ground.store("sink");
    import(&sink, &back).await.unwrap();
    assert_eq!(lasting(all(&sink).await), there);
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn imported_links_are_in_the_lists_of_a_cluster_which_is_exported_once_its_nodes_have_stopped() {
    let ground = Ground::new();
    export(&filled(&ground).await, &ground.file(), noon()).await.unwrap();
    let keyspace = Keyspace::empty().await;
    keyspace.migrate().await;
    let cluster = ScyllaTransfer::open(&keyspace.store_settings()).await.unwrap();
    import(&cluster, &ground.file()).await.unwrap();
    let added = "SELECT is_done FROM link_list_fill WHERE job = 1";
    let added = keyspace.session().await.query_unpaged(added, ()).await.unwrap().into_rows_result().unwrap();
    assert_eq!(added.single_row::<(bool,)>().unwrap(), (true,));

    let node = keyspace.open_store(node(1)).await;
    let out = ground.directory.path().join("out.jsonl");
    let refused = export(&cluster, &out, noon()).await.unwrap_err().to_string();
    assert!(refused.contains("is running, or was killed"), "{refused}");
    node.close().await;
    export(&cluster, &out, noon()).await.unwrap();
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_cluster_whose_node_is_lost_amid_a_batch_is_exported_where_that_node_is_named() {
    let ground = Ground::new();
    let keyspace = Keyspace::empty().await;
    keyspace.migrate().await;
    let out = ground.directory.path().join("out.jsonl");
    let refusal = async |cluster: &ScyllaTransfer| export(cluster, &out, noon()).await.unwrap_err().to_string();
    let open =
        async |lost: NodeId| ScyllaTransfer::open(&keyspace.store_settings()).await.unwrap().without_nodes(vec![lost]);
    let (gone, other) = (node(1), node(2));

    // It holds its queue.
    let store = keyspace.open_store(gone).await;
    let refused = refusal(&open(other).await).await;
    assert!(refused.contains(&format!("--lost-node {}", gone.0)), "{refused}");
    open(gone).await.check_idle().await.unwrap();
    store.close().await;

    // Its queue is another node's, and its batch has no end.
    let begun = format!("INSERT INTO hit_cursors (writer, begun, counted) VALUES ({}, 9, 4)", gone.0);
    keyspace.session().await.query_unpaged(begun, ()).await.unwrap();
    let refused = refusal(&open(other).await).await;
    assert!(refused.contains(&format!("--lost-node {}", gone.0)), "{refused}");
    let cluster = open(gone).await;
    export(&cluster, &out, noon()).await.unwrap();
    let cursors = cluster.read_page(Section::Cursors, None).await.unwrap().records;
    assert_eq!(cursors, [Record::Cursor { writer: gone, counted: Position(9) }]);
}

#[tokio::test]
async fn the_commands_carry_a_store_from_one_directory_to_another() {
    let ground = Ground::new();
    fill(ground.store("from/store")).await.close().await;
    let key = |byte: u8| STANDARD.encode([byte; 32]);
    let command = |data: &str, arguments: &[&str]| {
        Program::at(ground.directory.path()).arguments(arguments).set("SIGNPOST_DATA_DIR", data)
    };
    let run = |data: &str, arguments: &[&str]| command(data, arguments).set("SIGNPOST_MASTER_KEY", &key(7)).run();
    let exported = run("from", &["export", "all.jsonl"]);
    assert!(exported.code() == Some(0) && exported.stdout.starts_with("Exported 1101 links, 2 keys, "), "{exported:?}");
    assert!(exported.stderr.contains("webhook deliveries are pending"), "{exported:?}");
    let imported = run("to", &["import", "all.jsonl"]);
    assert!(imported.code() == Some(0) && imported.stdout.starts_with("Imported 1101 links, 2 keys, "), "{imported:?}");
    let again = run("to", &["import", "all.jsonl"]);
    assert!(again.code() == Some(0) && again.stdout.starts_with("Nothing to do"), "{again:?}");
    let nothing = run("nowhere", &["export", "other.jsonl"]);
    assert!(nothing.code() == Some(1) && !ground.directory.path().join("nowhere").exists(), "{nothing:?}");
    let embedded = run("from", &["export", "--lost-node", "00000000-0000-0000-0000-000000000001", "other.jsonl"]);
    assert!(embedded.code() == Some(1) && embedded.stderr.contains("the store is embedded"), "{embedded:?}");
    assert_eq!(all(&ground.store("to/store")).await, all(&ground.store("from/store")).await);
}
