//! The connection to the cluster: how requests are sent, and the guarantees of each kind.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::TryStreamExt;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::{NewSessionError, NextRowError, PrepareError};
use scylla::frame::types::{Consistency, SerialConsistency};
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use scylla::policies::timestamp_generator::MonotonicTimestampGenerator;
use scylla::response::query_result::{QueryResult, QueryRowsResult};
use scylla::serialize::row::SerializeRow;
use scylla::statement::Statement;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};
use thiserror::Error;

use super::driver_counts::{counts_of, sum_of};
use super::outcome::CqlError;
use super::pause::Pause;
use super::retries::Retries;
use crate::clock::Clock;
use crate::domain::breakdown::DEFAULT_SHEET_DAYS;
use crate::locks::lock;
use crate::store::DriverCounts;
use crate::store::reach::Reach;
use crate::tls;

/// The settings of a connection.
#[derive(Clone)]
pub struct ScyllaSettings {
    /// `host:port` of some of its nodes; the driver discovers the others.
    pub nodes: Vec<String>,
    pub keyspace: String,
    /// The datacenter whose nodes are used; `None` is any.
    pub datacenter: Option<String>,
    pub consistency: Consistency,
    pub serial_consistency: SerialConsistency,
    /// Longest time for one request, retries included.
    pub request_timeout: Duration,
    /// How long a read waits for an answer before it is also sent to another replica.
    pub speculative_after: Duration,
    pub credentials: Option<Credentials>,
    pub tls: Option<Tls>,
    /// How many days sheets of days are kept; 0: none are written.
    pub sheet_days: u32,
    /// Tells how long rows are still kept.
    pub clock: Clock,
}

/// The credentials of the service on the cluster.
#[derive(Clone)]
pub struct Credentials {
    pub username: String,
    pub password: String,
}

/// The certificate authorities that are trusted for a cluster.
#[derive(Clone, Debug)]
pub enum Tls {
    SystemRoots,
    /// A PEM file.
    Authority(PathBuf),
}

impl ScyllaSettings {
    /// With defaults for all other settings.
    pub fn new(nodes: Vec<String>, keyspace: String) -> Self {
        Self {
            nodes,
            keyspace,
            datacenter: None,
            consistency: Consistency::LocalQuorum,
            serial_consistency: SerialConsistency::LocalSerial,
            request_timeout: Duration::from_secs(5),
            speculative_after: Duration::from_millis(100),
            credentials: None,
            tls: None,
            sheet_days: DEFAULT_SHEET_DAYS,
            clock: Clock::system(),
        }
    }
}

/// Why there is no connection to the cluster.
#[derive(Debug, Error)]
pub enum ConnectError {
    #[error("can't reach any node of the cluster: {0}")]
    OutOfReach(Box<NewSessionError>),
    #[error("{path}: {reason}")]
    Authority { path: String, reason: String },
    #[error("can't set TLS up: {0}")]
    Tls(#[from] rustls::Error),
}

/// Connects to the cluster, without a keyspace.
pub async fn connect(settings: &ScyllaSettings) -> Result<Session, ConnectError> {
    connect_with(settings, Arc::new(MonotonicTimestampGenerator::new())).await
}

async fn connect_with(
    settings: &ScyllaSettings,
    timestamps: Arc<MonotonicTimestampGenerator>,
) -> Result<Session, ConnectError> {
    let mut nodes = DefaultPolicy::builder().token_aware(true).permit_dc_failover(false);
    if let Some(datacenter) = &settings.datacenter {
        nodes = nodes.prefer_datacenter(datacenter.clone());
    }
    let profile = ExecutionProfile::builder()
        .consistency(settings.consistency)
        .serial_consistency(Some(settings.serial_consistency))
        .request_timeout(Some(settings.request_timeout))
        .load_balancing_policy(nodes.build())
        .retry_policy(Arc::new(Retries))
        .build();
    let mut builder = SessionBuilder::new()
        .known_nodes(&settings.nodes)
        .default_execution_profile_handle(profile.into_handle())
        // For the few writes without a timestamp: those of one process are ordered.
        .timestamp_generator(timestamps)
        .connection_timeout(settings.request_timeout)
        // Only what is needed to send a statement to a node that has its rows.
        .keyspaces_to_fetch([&settings.keyspace])
        .fetch_full_schema_metadata(false)
        .schema_agreement_interval(Duration::from_millis(50))
        .tls_context(settings.tls.as_ref().map(tls_config).transpose()?);
    if let Some(Credentials { username, password }) = &settings.credentials {
        builder = builder.user(username, password);
    }
    builder.build().await.map_err(|error| ConnectError::OutOfReach(Box::new(error)))
}

fn tls_config(trust: &Tls) -> Result<Arc<rustls::ClientConfig>, ConnectError> {
    let roots = match trust {
        Tls::SystemRoots => tls::system_roots(),
        Tls::Authority(path) => authority(path)?,
    };
    Ok(Arc::new(tls::client_config(roots)?))
}

/// The certificates of a file.
pub fn authority(path: &Path) -> Result<RootCertStore, ConnectError> {
    let refused = |reason: String| ConnectError::Authority { path: path.display().to_string(), reason };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| refused(error.to_string()))? {
        let certificate = certificate.map_err(|error| refused(error.to_string()))?;
        roots.add(certificate).map_err(|error| refused(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(refused("has no certificate".into()));
    }
    Ok(roots)
}

/// What a statement does, which determines what happens if its answer is late or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// Reads what was written and acknowledged. Sent twice if the answer is late.
    Read,
    /// Reads what LWTs have decided, and completes one that is unfinished: settles whether it was applied.
    SettlingRead,
    /// An idempotent write: its timestamp is derived from its content, or no other process writes that row.
    Write,
    /// A conditional write. It is not idempotent, so it is never sent again without settling its outcome.
    Lwt,
}

/// Connects, and uses the keyspace of the settings, which must exist.
pub async fn in_keyspace(
    settings: &ScyllaSettings,
    timestamps: &Arc<MonotonicTimestampGenerator>,
) -> Result<Session, OpenSessionError> {
    let session = connect_with(settings, Arc::clone(timestamps)).await?;
    let in_keyspace = session.use_keyspace(&settings.keyspace, false).await;
    in_keyspace.map_err(|error| OpenSessionError::Keyspace(error.to_string()))?;
    Ok(session)
}

/// A statement that writes a row, and its values.
pub type RowWrite<'a> = (&'a PreparedStatement, Vec<Option<CqlValue>>);

/// A session in the service's keyspace.
pub struct Cql {
    /// Replaced after the cluster was unreachable.
    pub(super) session: ArcSwap<Session>,
    pub(super) settings: ScyllaSettings,
    /// Shared by consecutive sessions.
    pub(super) timestamps: Arc<MonotonicTimestampGenerator>,
    /// The counts of the previous sessions.
    pub(super) counts_before: Mutex<DriverCounts>,
    /// Notified of every answer.
    pub(super) reach: Arc<Reach>,
    /// For reads: if an answer is late, another replica is asked too.
    impatient: ExecutionProfileHandle,
}

impl Cql {
    /// What the driver has counted.
    pub fn driver_counts(&self) -> DriverCounts {
        let before = *lock(&self.counts_before);
        sum_of(before, counts_of(&self.session()))
    }

    /// Connects, and uses the keyspace of the settings, which must exist.
    pub async fn connect(settings: &ScyllaSettings) -> Result<Self, OpenSessionError> {
        let timestamps = Arc::new(MonotonicTimestampGenerator::new());
        let session = in_keyspace(settings, &timestamps).await?;
        let impatient = session.get_default_execution_profile_handle().pointee_to_builder();
        let asks_twice =
            SimpleSpeculativeExecutionPolicy { max_retry_count: 1, retry_interval: settings.speculative_after };
        let impatient = impatient.speculative_execution_policy(Some(Arc::new(asks_twice))).build().into_handle();
        Ok(Self {
            session: ArcSwap::from_pointee(session),
            settings: settings.clone(),
            timestamps,
            counts_before: Mutex::default(),
            reach: Arc::default(),
            impatient,
        })
    }

    /// Notes that the cluster has answered, if it has.
    fn noted<R, E>(&self, answer: Result<R, E>) -> Result<R, E> {
        if answer.is_ok() {
            self.reach.answered();
        }
        answer
    }

    /// Prepares a statement of a kind.
    pub async fn prepare(
        &self,
        kind: StatementKind,
        text: impl Into<String>,
    ) -> Result<PreparedStatement, PrepareError> {
        let mut statement = Statement::new(text);
        statement.set_is_idempotent(kind != StatementKind::Lwt);
        let mut prepared = self.session().prepare(statement).await?;
        prepared.set_is_idempotent(kind != StatementKind::Lwt);
        if kind == StatementKind::Read {
            prepared.set_execution_profile_handle(Some(self.impatient.clone()));
        }
        if kind == StatementKind::SettlingRead {
            prepared.set_consistency(match self.settings.serial_consistency {
                SerialConsistency::LocalSerial => Consistency::LocalSerial,
                SerialConsistency::Serial => Consistency::Serial,
            });
        }
        Ok(prepared)
    }

    /// How long to retry what the cluster does not settle at once.
    pub fn patience(&self) -> Duration {
        self.settings.request_timeout * 2
    }

    /// For statements that are not prepared.
    pub fn session(&self) -> Arc<Session> {
        self.session.load_full()
    }

    /// Writes. `Ok` is durable on as many replicas as the consistency level requires.
    pub async fn write(&self, statement: &PreparedStatement, values: impl SerializeRow) -> Result<(), CqlError> {
        let written = self.noted(self.session().execute_unpaged(statement, values).await);
        written.map(drop).map_err(|error| CqlError::of(&error, false))
    }

    /// Writes rows of one partition atomically.
    pub async fn write_partition<V: SerializeRow>(
        &self,
        statement: &PreparedStatement,
        rows: Vec<V>,
    ) -> Result<(), CqlError> {
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_is_idempotent(true);
        for _ in &rows {
            batch.append_statement(statement.clone());
        }
        let written = self.noted(self.session().batch(&batch, rows).await);
        written.map(drop).map_err(|error| CqlError::of(&error, false))
    }

    /// Writes different rows in one request. Those of one partition are written atomically, like by
    /// [`write_partition`](Self::write_partition).
    pub async fn write_together(&self, writes: Vec<RowWrite<'_>>) -> Result<(), CqlError> {
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_is_idempotent(true);
        let mut rows = Vec::with_capacity(writes.len());
        for (statement, values) in writes {
            batch.append_statement(statement.clone());
            rows.push(values);
        }
        let written = self.noted(self.session().batch(&batch, rows).await);
        written.map(drop).map_err(|error| CqlError::of(&error, false))
    }

    /// All rows, page after page.
    pub async fn read<R>(&self, statement: &PreparedStatement, values: impl SerializeRow) -> Result<Vec<R>, CqlError>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata> + Send + 'static,
    {
        let mut all = Vec::new();
        self.read_each(statement, values, |row| all.push(row)).await?;
        Ok(all)
    }

    /// Calls `each` with all rows, of which one page at a time is in memory.
    pub async fn read_each<R>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        mut each: impl FnMut(R) + Send,
    ) -> Result<(), CqlError>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata> + Send + 'static,
    {
        let pages = self.noted(self.session().execute_iter(statement.clone(), values).await);
        let pages = pages.map_err(|error| CqlError::NotApplied(error.to_string()))?;
        let mut rows = pages.rows_stream::<R>().map_err(|error| CqlError::Unusable(error.to_string()))?;
        loop {
            match rows.try_next().await {
                Ok(Some(row)) => each(row),
                Ok(None) => return Ok(()),
                Err(error @ NextRowError::RowDeserializationError(_)) => {
                    return Err(CqlError::Unusable(error.to_string()));
                }
                Err(error) => return Err(CqlError::NotApplied(error.to_string())),
            }
        }
    }

    /// All rows of a partition, as they are at one time: in one page.
    pub async fn read_at_once<R>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Vec<R>, CqlError>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame> + Send + 'static,
    {
        let unusable = |error: &dyn std::fmt::Display| CqlError::Unusable(error.to_string());
        let rows = self.rows_of(statement, values).await?;
        let rows = rows.rows::<R>().map_err(|error| unusable(&error))?;
        rows.collect::<Result<_, _>>().map_err(|error| unusable(&error))
    }

    /// The row, if there is one.
    pub async fn read_one<R>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Option<R>, CqlError>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame> + Send + 'static,
    {
        let rows = self.rows_of(statement, values).await?;
        rows.maybe_first_row::<R>().map_err(|error| CqlError::Unusable(error.to_string()))
    }

    /// The answer to a read of one page.
    async fn rows_of(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryRowsResult, CqlError> {
        let answer = self.noted(self.session().execute_unpaged(statement, values).await);
        let answer = answer.map_err(|error| CqlError::of(&error, false).of_read())?;
        answer.into_rows_result().map_err(|error| CqlError::Unusable(error.to_string()))
    }

    /// Sends an LWT; returns whether it was applied.
    pub async fn lwt(&self, statement: &PreparedStatement, values: impl SerializeRow) -> Result<bool, CqlError> {
        let answer = self.noted(self.session().execute_unpaged(statement, values).await);
        applied(answer.map_err(|error| CqlError::of(&error, true))?)
    }

    /// Sends an LWT until its outcome is known: `attempt` sends it, `settle` reads the row.
    ///
    /// `settle` returns whether the row is ours; `None` if nothing is decided, so that the LWT is sent again.
    pub async fn settled<A, S>(
        &self,
        attempt: impl Fn() -> A + Send,
        settle: impl Fn() -> S + Send,
    ) -> Result<bool, CqlError>
    where
        A: Future<Output = Result<bool, CqlError>> + Send,
        S: Future<Output = Result<Option<bool>, CqlError>> + Send,
    {
        let mut pause = Pause::within(self.patience());
        loop {
            let error = match attempt().await {
                Ok(true) => return Ok(true),
                Err(error) if error.is_final() => return Err(error),
                Err(error @ CqlError::NotApplied(_)) => error,
                // Refused by the existing row, which an earlier attempt of ours may have written; or unknown.
                outcome => match settle().await {
                    Ok(Some(is_ours)) => return Ok(is_ours),
                    Ok(None) => outcome
                        .err()
                        .unwrap_or_else(|| CqlError::Unknown("an LWT was refused without a conflicting row".into())),
                    Err(error) => CqlError::Unknown(error.to_string()),
                },
            };
            if pause.wait().await.is_break() {
                return Err(error);
            }
        }
    }
}

/// Why there is no session in the keyspace.
#[derive(Debug, Error)]
pub enum OpenSessionError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("can't use the keyspace: {0}")]
    Keyspace(String),
}

/// The `[applied]` of an LWT's answer, whatever other columns it has.
fn applied(answer: QueryResult) -> Result<bool, CqlError> {
    let unreadable = |error: &dyn std::fmt::Display| CqlError::Unknown(format!("an LWT's answer: {error}"));
    let rows = answer.into_rows_result().map_err(|error| unreadable(&error))?;
    let column = rows.column_specs().get_by_name("[applied]").map(|(place, _)| place);
    let row = rows.first_row::<Row>().map_err(|error| unreadable(&error))?;
    match column.and_then(|place| row.columns.into_iter().nth(place)).flatten() {
        Some(CqlValue::Boolean(applied)) => Ok(applied),
        _ => Err(unreadable(&"has no [applied]")),
    }
}
