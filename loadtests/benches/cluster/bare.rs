//! What the driver alone does on the cluster: prepared statements of the kinds that the store uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use scylla::client::session::Session;
use scylla::statement::Statement;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;
use signpost::domain::link::ShortId;
use signpost::store::cql::session::{ScyllaSettings, connect};
use uuid::Uuid;

use super::{Done, IN_FLIGHT};
use loadtests::engine::{self, Engine};

const INSERT: &str = "INSERT INTO links (id, claim, owner, created_at, target, data, webhooks, tracked) \
                      VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
const PUT_DAY: &str = "INSERT INTO link_days (link, day, writer, desktop, mobile, tablet, upto) \
                       VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
const READ: &str = "SELECT id, owner, created_at, target, data, webhooks, tracked FROM links WHERE id = ?";
const IDLE_WITHIN: Duration = Duration::from_mins(2);
/// As many as the store has under way for one flush.
const ROWS_IN_FLIGHT: usize = 128;

pub struct Bare {
    session: Arc<Session>,
    insert: PreparedStatement,
    insert_by_lwt: PreparedStatement,
    read: PreparedStatement,
    put_day: PreparedStatement,
    next: AtomicU64,
}

impl Bare {
    pub async fn open(engine: &Engine, keyspace: &str) -> Self {
        let settings = ScyllaSettings::new(engine.nodes().to_vec(), keyspace.to_owned());
        let session = connect(&settings).await.unwrap();
        session.use_keyspace(keyspace, false).await.unwrap();
        let prepare = async |text: String, is_idempotent| {
            let mut statement = session.prepare(Statement::new(text)).await.unwrap();
            statement.set_is_idempotent(is_idempotent);
            statement
        };
        let insert = prepare(INSERT.to_owned(), true).await;
        let insert_by_lwt = prepare(format!("{INSERT} IF NOT EXISTS"), false).await;
        let (read, put_day) = (prepare(READ.to_owned(), true).await, prepare(PUT_DAY.to_owned(), true).await);
        Self { session: Arc::new(session), insert, insert_by_lwt, read, put_day, next: AtomicU64::new(0) }
    }

    /// Waits until no node compacts what earlier parts have written.
    pub async fn idle(&self) {
        engine::idle(&self.session, IDLE_WITHIN).await;
    }

    pub async fn insert(&self, seconds: f64) -> Done {
        self.rate(seconds, async || self.insert_one(&self.insert).await).await
    }

    pub async fn insert_by_lwt(&self, seconds: f64) -> Done {
        self.rate(seconds, async || self.insert_one(&self.insert_by_lwt).await).await
    }

    async fn insert_one(&self, statement: &PreparedStatement) {
        // Ids that the store does not draw: it checks them for their shape only.
        let id = format!("{:07}", self.next.fetch_add(1, Ordering::Relaxed));
        let (created_at, webhooks) = (CqlTimestamp(1_795_000_000_000), Vec::<String>::new());
        let (target, data) = ("https://shop.example.com/autumn/sale?utm_source=mail", "{\"campaign\":\"autumn\"}");
        let values = (id, Uuid::new_v4(), Uuid::nil(), created_at, target, data, webhooks, true);
        self.session.execute_unpaged(statement, values).await.unwrap();
    }

    pub async fn read(&self, seconds: f64, links: &[ShortId]) -> Done {
        let next = AtomicU64::new(0);
        let one = async || {
            let link = links[next.fetch_add(1, Ordering::Relaxed) as usize % links.len()];
            let answer = self.session.execute_unpaged(&self.read, (link.as_str(),)).await.unwrap();
            assert_eq!(answer.into_rows_result().unwrap().rows_num(), 1);
        };
        self.rate(seconds, one).await
    }

    /// Writes as many rows as there are; answers how many a second.
    pub async fn write_rows(&self, rows: u32, round: u32) -> Done {
        let (next, begun) = (AtomicU64::new(0), Instant::now());
        let worker = async || {
            loop {
                let row = next.fetch_add(1, Ordering::Relaxed);
                if row >= u64::from(rows) {
                    return;
                }
                let link = format!("b{row:06}");
                let (day, count, upto) = (20_000_i32, 1_i64, i64::from(round));
                let values = (link, day, Uuid::nil(), count, count, count, upto, upto);
                self.session.execute_unpaged(&self.put_day, values).await.unwrap();
            }
        };
        join_all((0..ROWS_IN_FLIGHT).map(|_| worker())).await;
        Done::since(begun, rows.into())
    }

    async fn rate(&self, seconds: f64, one: impl AsyncFn()) -> Done {
        let (done, begun) = (AtomicU64::new(0), Instant::now());
        let end = Duration::from_secs_f64(seconds);
        let worker = async || {
            while begun.elapsed() < end {
                one().await;
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        join_all((0..IN_FLIGHT).map(|_| worker())).await;
        Done::since(begun, done.into_inner())
    }
}
