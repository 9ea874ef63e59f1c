//! What is fuzzed: parsers of bytes from outside, and what must hold of their answers besides that there is one. Bodies are
//! `serde_json`'s to parse.
//!
//! Shared by the fuzzer (`tests/fuzz/run`) and by `cargo test`, which feeds it the seeds and changes of them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use actix_http::header::{HeaderMap, HeaderName, HeaderValue};
use async_trait::async_trait;
use futures_util::FutureExt;
use httparse::{EMPTY_HEADER, Request, Status};
use signpost::counting::places::PlaceDatabase;
use signpost::domain::calendar::Timestamp;
use signpost::domain::guard::AddressGuard;
use signpost::domain::hit::{HitCursor, NodeId};
use signpost::domain::link::{BaseUrl, LinkData, ShortId, TargetUrl};
use signpost::domain::qr::{QrImage, QrOptions, QrParameters, render};
use signpost::domain::webhook::DeliveryId;
use signpost::domain::webhook_url::WebhookUrl;
use signpost::http::auth::presented_secret;
use signpost::http::client::{TrustedProxies, client_address};
use signpost::http::fast_path::encode::AfterAnswer;
use signpost::http::fast_path::{Head, Room};
use signpost::http::list_cursor::{self, ListFingerprint};
use signpost::journal::format::RecordLayout;
use signpost::journal::record::HitRecord;
use signpost::journal::{self, JournalError, JournalSettings};
use signpost::store::StoreError;
use signpost::store::transfer::{Record, Sink, SinkError};
use signpost::transfer::import as import_file;
use tempfile::TempDir;
use uuid::Uuid;

/// Takes any bytes, and panics where something does not hold.
pub type Target = fn(&[u8]);

/// All targets, by the names of their seeds.
pub const ALL: [(&str, Target); 10] = [
    ("heads", heads),
    ("target_url", target_url),
    ("forwarding", forwarding),
    ("key_header", key_header),
    ("colours", colours),
    ("cursors", cursors),
    ("journal", journal),
    ("hit_record", hit_record),
    ("places", places),
    ("import", import),
];

/// Heads of requests: what the fast path takes, `httparse` reads the same way.
pub fn heads(bytes: &[u8]) {
    let mut room = Room::new();
    let Some(head) = Head::parse(bytes, &mut room) else { return };
    let mut others = [EMPTY_HEADER; 64];
    let mut request = Request::new(&mut others);
    assert_eq!(request.parse(bytes), Ok(Status::Complete(head.length)));
    assert_eq!(request.method, Some(if head.is_get { "GET" } else { "HEAD" }));
    let path = request.path.unwrap();
    let (name, query) = path.split_once('?').unwrap_or((path, ""));
    assert_eq!((name, query), (&*format!("/{}", head.name), head.answer_fields.query));
    assert_eq!(request.version, Some(u8::from(head.then != AfterAnswer::ClosesAsExpected)));
    assert!(
        head.fields
            .iter()
            .map(|field| (field.name, field.value))
            .eq(request.headers.iter().map(|field| { (field.name.as_bytes(), field.value) }))
    );
}

/// What a client sends in a new link: target, webhook and data.
pub fn target_url(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let own = BaseUrl::new("https://sign.example".parse().unwrap());
    if let Ok(target) = TargetUrl::parse(&text, &own) {
        // What is no ASCII is kept escaped, and takes more room then; the limit is that of what was sent.
        assert!(target.as_str().len() <= 16 * text.len(), "{} bytes of {}", target.as_str().len(), text.len());
        if target.as_str().len() <= 8_192 {
            let again = TargetUrl::parse(target.as_str(), &own).expect("what was taken is taken again");
            assert_eq!(again.as_str(), target.as_str());
        }
        HeaderValue::from_str(target.as_str()).expect("it can stand in a header");
    }
    if let Ok(webhook) = WebhookUrl::parse(&text, &AddressGuard::new(Vec::new())) {
        WebhookUrl::parse_stored(webhook.as_str()).expect("what was taken can be read");
    }
    if serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&text).is_ok() {
        let _ = LinkData::from_json_object(&text);
    }
    if let Some(id) = ShortId::parse(&text) {
        assert_eq!(id.as_str(), text);
    }
}

/// Header lines: the first byte of each says which.
pub fn forwarding(bytes: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some((kind, value)) = line.split_first() else { continue };
        let name = if kind % 2 == 0 { "x-forwarded-for" } else { "forwarded" };
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(HeaderName::from_static(name), value);
        }
    }
    let peer = SocketAddr::from(([10, 0, 0, 1], 80));
    let trusted = TrustedProxies::new(vec!["10.0.0.0/8".parse().unwrap()]);
    client_address(Some(peer), &headers, &trusted);
    let nobody = TrustedProxies::new(Vec::new());
    assert_eq!(client_address(Some(peer), &headers, &nobody), peer.ip(), "who is not trusted is the client");
}

/// `X-API-Key` or `Authorization`.
pub fn key_header(bytes: &[u8]) {
    let Some((kind, value)) = bytes.split_first() else { return };
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    let name = if kind % 2 == 0 { "x-api-key" } else { "authorization" };
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static(name), value);
    if let Some(secret) = presented_secret(&headers) {
        let _ = signpost::domain::key::SecretHash::of(secret);
    }
}

/// What all images say.
pub const DRAWN: &str = "https://sign.example/Abc1234";

/// Format, scale and colours of a QR code, one a line.
pub fn colours(bytes: &[u8]) {
    drawn(bytes);
}

/// The image of these options, where there may be one.
pub fn drawn(bytes: &[u8]) -> Option<QrImage> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n').map(|line| Some(line).filter(|line| !line.is_empty()));
    let mut line = || lines.next().flatten();
    let parameters = QrParameters { dark: line(), light: line(), scale: line(), format: line() };
    let options = QrOptions::parse(&parameters).ok()?;
    Some(render(DRAWN, &options).expect("what was taken can be drawn"))
}

/// Where a list goes on.
pub fn cursors(bytes: &[u8]) {
    if let Some(id) = DeliveryId::from_bytes(bytes) {
        assert_eq!(id.to_bytes().as_slice(), bytes);
    }
    let _ = Uuid::try_parse_ascii(bytes);
    let list = ListFingerprint::of([Some("tag"), None]);
    assert!(list_cursor::decode(&String::from_utf8_lossy(bytes), list, Timestamp(0)).is_err());
    // As somebody makes it who knows how.
    if let Some((issued_at, _)) = bytes.split_first_chunk() {
        let (cursor, issued_at) = (list_cursor::sealed(bytes, list), Timestamp(u64::from_be_bytes(*issued_at)));
        if let Ok(place) = list_cursor::decode(&cursor, list, issued_at) {
            assert_eq!(list_cursor::encode(place, list, issued_at), cursor);
        }
    }
}

pub const NODE: NodeId = NodeId(Uuid::from_u64_pair(0x0194_0000_0000_7000, 1));

/// A segment that an earlier process has left.
pub fn journal(bytes: &[u8]) {
    hits_in(bytes);
}

/// Hits that are read of a segment.
pub fn hits_in(bytes: &[u8]) -> usize {
    let directory = in_memory();
    std::fs::write(directory.path().join("00000000000000000000.seg"), bytes).unwrap();
    let settings = JournalSettings { segment_bytes: 4096, disk_budget: 1 << 20, ..JournalSettings::default() };
    let mut opened = match journal::open(directory.path(), &settings, NODE, HitCursor::default()) {
        Ok(opened) => opened,
        Err(JournalError::LaterRelease { .. }) => return 0,
        Err(error) => panic!("{error}"),
    };
    let mut records = 0;
    loop {
        let read = opened.reader.read(100, &mut |_, _| records += 1);
        if read.caught_up {
            return records;
        }
        assert!(records <= bytes.len(), "a record has some bytes");
    }
}

/// A record of a segment of either layout.
pub fn hit_record(bytes: &[u8]) {
    for layout in [RecordLayout::V1, RecordLayout::V2] {
        if let Ok(hit) = HitRecord::decode(layout, bytes) {
            let mut again = vec![0; usize::from(hit.encoded_len())];
            hit.encode(&mut again);
            assert_eq!(HitRecord::decode(RecordLayout::WRITTEN, &again), Ok(hit));
        }
    }
}

/// A database of places.
pub fn places(bytes: &[u8]) {
    let directory = in_memory();
    let path = directory.path().join("places.mmdb");
    std::fs::write(&path, bytes).unwrap();
    let Ok(places) = PlaceDatabase::open(&path) else { return };
    for address in ["1.1.1.1", "203.0.113.7", "2001:db8::1", "::", "255.255.255.255"] {
        let _ = places.lookup(address.parse::<IpAddr>().unwrap());
    }
}

/// What an export has written.
pub fn import(bytes: &[u8]) {
    is_imported(bytes);
}

/// Whether all of an export was taken.
pub fn is_imported(bytes: &[u8]) -> bool {
    let directory = in_memory();
    let path = directory.path().join("export.jsonl");
    std::fs::write(&path, bytes).unwrap();
    let sink = Taken(Mutex::new(0));
    let imported = import_file(&sink, &path).now_or_never().expect("nothing is waited for");
    if imported.is_err() {
        assert_eq!(*sink.0.lock().unwrap(), 0, "of a damaged file nothing is written");
    }
    imported.is_ok()
}

/// Counts what it is given.
struct Taken(Mutex<usize>);

#[async_trait]
impl Sink for Taken {
    async fn kept(&self, _: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }

    async fn write(&self, records: Vec<Record>) -> Result<(), SinkError> {
        *self.0.lock().unwrap() += records.len();
        Ok(())
    }
}

/// A directory in memory where there is one: a fuzzer makes thousands of files a second.
fn in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}
