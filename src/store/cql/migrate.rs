//! Brings the schema of a keyspace up to date, and checks whether it is.
//!
//! Any number of processes may do it at once: one works at a time, under a lock in the keyspace itself, because a
//! cluster that creates the same table at two of its nodes at once may end with two of that name. The tables that the
//! lock needs are created without it, and are safe in another way, see `bootstrap`.

mod files;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use scylla::client::session::Session;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::response::query_result::{QueryResult, QueryRowsResult};
use scylla::serialize::row::SerializeRow;
use scylla::statement::unprepared::Statement;
use scylla::value::{CqlValue, Row};
use thiserror::Error;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use self::files::{AddedColumn, added_column};
pub use self::files::{FILES, SchemaFile};

/// How long the lock holds unless it is renewed, in seconds. It is renewed before each statement.
const LOCK_SECONDS: i32 = 60;
/// Longest time for one statement: less than the lock holds. Creating a table takes a cluster some seconds.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait for another process that migrates.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// How often to try to take the lock, and the first wait before a retry.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Attempts of a request that the cluster does not answer, or not clearly.
const TRIES: u32 = 5;

/// A file that was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    pub name: &'static str,
}

/// Why the schema can't be used, or was not brought up to date.
#[derive(Debug, Error)]
pub enum MigrateError {
    #[error("the keyspace {keyspace} has no schema: run `signpost migrate`, or set scylla.migrate_at_start")]
    Missing { keyspace: String },
    #[error(
        "the schema of the keyspace {keyspace} is older than this program, {name} is not applied: run `signpost migrate`, \
         or set scylla.migrate_at_start"
    )]
    Older { keyspace: String, name: &'static str },
    #[error(
        "the schema of the keyspace {keyspace} is newer than this program, which does not know {name}: run the release \
         that applied it, or a later one"
    )]
    Newer { keyspace: String, name: String },
    #[error(
        "{name} was applied to the keyspace {keyspace} as another text than this program's: run a release, not a build \
         in between"
    )]
    Changed { keyspace: String, name: &'static str },
    #[error("another process is migrating the keyspace {keyspace}: run this again when it has ended")]
    Locked { keyspace: String },
    #[error("another process took over the work on the keyspace {keyspace}, because this one was paused: run it again")]
    LockLost { keyspace: String },
    #[error("the cluster did not {task}: {source}")]
    Cluster { task: &'static str, source: Box<dyn Error + Send + Sync> },
}

impl MigrateError {
    fn cluster(task: &'static str) -> impl Fn(Box<dyn Error + Send + Sync>) -> Self {
        move |source| Self::Cluster { task, source }
    }
}

/// Applies every file that is not yet applied, and returns these files. Creates the keyspace if it is missing, with
/// `replication_factor` copies in `datacenter` (`None`: that of the node which answers). The session uses the keyspace
/// afterwards.
///
/// # Errors
/// Nothing was applied if the error is about a file's text or a newer schema. After any other error a retry continues
/// where this ended.
pub async fn migrate(
    session: &Session,
    keyspace: &str,
    replication_factor: u32,
    datacenter: Option<&str>,
) -> Result<Vec<Applied>, MigrateError> {
    migrate_to(FILES, session, keyspace, replication_factor, datacenter).await
}

/// The same with other files than this program's: for tests of what a file may have.
///
/// # Errors
/// As for [`migrate`].
pub async fn migrate_to(
    files: &[SchemaFile],
    session: &Session,
    keyspace: &str,
    replication_factor: u32,
    datacenter: Option<&str>,
) -> Result<Vec<Applied>, MigrateError> {
    bootstrap(session, keyspace, replication_factor, datacenter).await?;
    let used = session.use_keyspace(keyspace, true).await;
    used.map_err(|error| MigrateError::cluster("use the keyspace")(error.into()))?;
    let lock = Lock::take(session, keyspace).await?;
    // Who had the lock may have waited for this until it expired: then some nodes do not know yet what was applied last.
    agree(session).await?;
    match apply(files, &lock).await {
        // The effect of a failed statement may appear late: the lock is not released and expires, so that no other
        // process begins before.
        Err(error @ MigrateError::Cluster { .. }) => Err(error),
        result => {
            lock.release().await?;
            result
        }
    }
}

/// Whether the schema is the one that this program knows.
///
/// # Errors
/// One line that says what to do.
pub async fn check(session: &Session, keyspace: &str) -> Result<(), MigrateError> {
    let statement = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name = 'migrations'";
    if ask_rows(session, "list its tables", statement, (keyspace,)).await?.rows_num() == 0 {
        return Err(MigrateError::Missing { keyspace: keyspace.to_owned() });
    }
    match missing(FILES, session, keyspace).await?.first() {
        None => Ok(()),
        Some(first) if *first == FILES[0] => Err(MigrateError::Missing { keyspace: keyspace.to_owned() }),
        Some(first) => Err(MigrateError::Older { keyspace: keyspace.to_owned(), name: first.name }),
    }
}

/// The value of a name, before the schema is checked; `None` also if there is no schema.
///
/// # Errors
/// When the cluster does not answer.
pub async fn kept(session: &Session, keyspace: &str, name: &str) -> Result<Option<Vec<u8>>, MigrateError> {
    let statement = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name = 'names'";
    if ask_rows(session, "list its tables", statement, (keyspace,)).await?.rows_num() == 0 {
        return Ok(None);
    }
    let task = "return a value";
    let statement = format!("SELECT value FROM \"{keyspace}\".names WHERE name = ?");
    let result = ask_rows(session, task, &statement, (name,)).await?;
    let row = result.maybe_first_row::<(Option<Vec<u8>>,)>();
    let row = row.map_err(|error| MigrateError::cluster(task)(error.into()))?;
    Ok(row.and_then(|(value,)| value))
}

/// The files that are not applied.
async fn missing(files: &[SchemaFile], session: &Session, keyspace: &str) -> Result<Vec<SchemaFile>, MigrateError> {
    let task = "list what was applied";
    let statement = format!("SELECT name, sha256 FROM \"{keyspace}\".migrations");
    let result = ask_rows(session, task, &statement, ()).await?;
    let rows = result.rows::<(String, String)>().map_err(|error| MigrateError::cluster(task)(error.into()))?;
    let applied: Vec<_> = rows.collect::<Result<_, _>>().map_err(|error| MigrateError::cluster(task)(error.into()))?;

    if let Some((name, _)) = applied.iter().find(|(name, _)| files.iter().all(|file| file.name != name)) {
        return Err(MigrateError::Newer { keyspace: keyspace.to_owned(), name: name.clone() });
    }
    let mut missing = Vec::new();
    for file in files {
        match applied.iter().find(|(name, _)| name == file.name) {
            Some((_, sha256)) if *sha256 == file.sha256() => {}
            Some(_) => return Err(MigrateError::Changed { keyspace: keyspace.to_owned(), name: file.name }),
            None => missing.push(*file),
        }
    }
    Ok(missing)
}

/// Applies the missing files. If the process dies, some statements of a file may be applied: each of them can be
/// applied again.
async fn apply(files: &[SchemaFile], lock: &Lock<'_>) -> Result<Vec<Applied>, MigrateError> {
    let mut applied = Vec::new();
    for file in missing(files, lock.session, lock.keyspace).await? {
        for statement in file.statements() {
            lock.renew().await?;
            if let Some(column) = added_column(&statement)
                && has_column(lock, column).await?
            {
                continue;
            }
            // Without an automatic retry: it could go to another node of the cluster, which may not know of the change
            // yet.
            let sent = lock.session.query_unpaged(once(&statement), ()).await;
            sent.map_err(|error| MigrateError::cluster("change the schema")(error.into()))?;
            agree(lock.session).await?;
        }
        let note = format!(
            "INSERT INTO \"{}\".migrations (name, sha256, applied_at) VALUES (?, ?, toTimestamp(now()))",
            lock.keyspace
        );
        ask(lock.session, "note what was applied", &note, (file.name, file.sha256())).await?;
        applied.push(Applied { name: file.name });
    }
    Ok(applied)
}

/// Whether a column that a file adds exists already. `ScyllaDB` has no `ADD IF NOT EXISTS`.
async fn has_column(lock: &Lock<'_>, AddedColumn { table, column }: AddedColumn<'_>) -> Result<bool, MigrateError> {
    let statement =
        "SELECT column_name FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ? AND column_name = ?";
    let found = ask_rows(lock.session, "list its columns", statement, (lock.keyspace, table, column)).await?;
    Ok(found.rows_num() > 0)
}

/// Creates the keyspace and the two tables that the migration needs.
///
/// Here no lock excludes other processes. A keyspace is identified by its name, so creating it twice is safe. A table
/// also has an id, which Cassandra chooses at random at each of its nodes: here the id is given, so that all processes
/// create the same table. `ScyllaDB` serializes changes of the schema and needs no id.
async fn bootstrap(
    session: &Session,
    keyspace: &str,
    replication_factor: u32,
    datacenter: Option<&str>,
) -> Result<(), MigrateError> {
    let tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
    let result = ask_rows(session, "list its tables", tables, (keyspace,)).await?;
    let rows = result.rows::<(String,)>().map_err(|error| MigrateError::cluster("list its tables")(error.into()))?;
    let there: Vec<String> = rows.flatten().map(|(name,)| name).collect();
    let features = supported_features(session).await?;

    if there.is_empty() {
        // Checked first: a role that may only create tables may not send `CREATE KEYSPACE IF NOT EXISTS`, even if it
        // exists.
        let keyspaces = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
        if ask_rows(session, "list its keyspaces", keyspaces, (keyspace,)).await?.rows_num() == 0 {
            let datacenter = match datacenter {
                Some(name) => name.to_owned(),
                None => own_datacenter(session).await?,
            };
            let statement = make_keyspace(keyspace, &datacenter, replication_factor, features.as_deref());
            ask(session, "create the keyspace", &statement, ()).await?;
            agree(session).await?;
        }
    }
    for (table, columns) in [
        ("migrations", "name text PRIMARY KEY, sha256 text, applied_at timestamp"),
        ("migration_lock", "name text PRIMARY KEY, holder uuid"),
    ] {
        if there.iter().any(|name| name == table) {
            continue;
        }
        let mut statement = format!("CREATE TABLE IF NOT EXISTS \"{keyspace}\".{table} ({columns})");
        if features.is_none() {
            statement = format!("{statement} WITH id = {}", table_id(keyspace, table));
        }
        ask(session, "create the table of migrations", &statement, ()).await?;
    }
    // Another process may have created them a moment ago, and not all nodes may know.
    agree(session).await
}

/// `features` are those of the engine; `None` if it does not list them.
fn make_keyspace(keyspace: &str, datacenter: &str, replication_factor: u32, features: Option<&str>) -> String {
    let has = |name: &str| features.is_some_and(|all| all.split(',').any(|feature| feature.trim() == name));
    let tablets = if has("TABLETS") && !has("LWT_WITH_TABLETS") { " AND tablets = {'enabled': false}" } else { "" };
    let datacenter = datacenter.replace('\'', "''");
    format!(
        "CREATE KEYSPACE IF NOT EXISTS \"{keyspace}\" WITH replication = {{'class': 'NetworkTopologyStrategy', \
         '{datacenter}': {replication_factor}}}{tablets}"
    )
}

/// The id of a table: the same for all processes, and different in each keyspace.
fn table_id(keyspace: &str, table: &str) -> Uuid {
    let hash = digest(&SHA256, format!("signpost {keyspace}.{table}").as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_ref()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// The features of the engine, separated by commas; `None` if it does not list them: only `ScyllaDB` has this column.
async fn supported_features(session: &Session) -> Result<Option<String>, MigrateError> {
    let task = "list its features";
    let column = "SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'system' AND table_name = 'local' AND \
                  column_name = 'supported_features'";
    if ask_rows(session, task, column, ()).await?.rows_num() == 0 {
        return Ok(None);
    }
    let result = ask_rows(session, task, "SELECT supported_features FROM system.local", ()).await?;
    let row = result.first_row::<(Option<String>,)>();
    row.map(|(features,)| Some(features.unwrap_or_default())).map_err(|error| MigrateError::cluster(task)(error.into()))
}

async fn own_datacenter(session: &Session) -> Result<String, MigrateError> {
    let task = "return its datacenter";
    let result = ask_rows(session, task, "SELECT data_center FROM system.local", ()).await?;
    let row = result.first_row::<(String,)>();
    row.map(|(name,)| name).map_err(|error| MigrateError::cluster(task)(error.into()))
}

/// Waits until all nodes have the same schema.
async fn agree(session: &Session) -> Result<(), MigrateError> {
    let agreed = session.await_schema_agreement().await;
    agreed.map(drop).map_err(|error| MigrateError::cluster("agree on its schema")(error.into()))
}

/// The lock, held by this process.
struct Lock<'a> {
    session: &'a Session,
    keyspace: &'a str,
    holder: Uuid,
}

impl<'a> Lock<'a> {
    /// Waits until no other process has the lock.
    async fn take(session: &'a Session, keyspace: &'a str) -> Result<Self, MigrateError> {
        let lock = Self { session, keyspace, holder: Uuid::now_v7() };
        let statement = format!(
            "INSERT INTO \"{keyspace}\".migration_lock (name, holder) VALUES ('schema', ?) IF NOT EXISTS USING TTL \
             {LOCK_SECONDS}"
        );
        let deadline = Instant::now() + LONGEST_WAIT;
        while !lock.is_mine(&statement, (lock.holder,)).await? {
            if Instant::now() > deadline {
                return Err(MigrateError::Locked { keyspace: keyspace.to_owned() });
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(lock)
    }

    async fn renew(&self) -> Result<(), MigrateError> {
        let statement = format!(
            "UPDATE \"{}\".migration_lock USING TTL {LOCK_SECONDS} SET holder = ? WHERE name = 'schema' IF holder = ?",
            self.keyspace
        );
        if self.is_mine(&statement, (self.holder, self.holder)).await? {
            Ok(())
        } else {
            Err(MigrateError::LockLost { keyspace: self.keyspace.to_owned() })
        }
    }

    async fn release(&self) -> Result<(), MigrateError> {
        let statement = format!("DELETE FROM \"{}\".migration_lock WHERE name = 'schema' IF holder = ?", self.keyspace);
        ask(self.session, "release the lock", &statement, (self.holder,)).await.map(drop)
    }

    /// Whether this process has the lock after a conditional write. A write with an unknown outcome is sent again: if
    /// it was applied, the row that refuses the second one has this process as its holder.
    async fn is_mine(&self, statement: &str, values: impl SerializeRow) -> Result<bool, MigrateError> {
        let task = "settle the lock";
        let result = ask_rows(self.session, task, statement, values).await?;
        let holder = result.column_specs().get_by_name("holder").map(|(place, _)| place);
        let row: Row = result.first_row().map_err(|error| MigrateError::cluster(task)(error.into()))?;
        let is_applied = matches!(row.columns.first(), Some(Some(CqlValue::Boolean(true))));
        let found =
            holder.and_then(|place| row.columns.get(place)).and_then(Option::as_ref).and_then(CqlValue::as_uuid);
        Ok(is_applied || found == Some(self.holder))
    }
}

async fn ask_rows(
    session: &Session,
    task: &'static str,
    statement: &str,
    values: impl SerializeRow,
) -> Result<QueryRowsResult, MigrateError> {
    let result = ask(session, task, statement, values).await?;
    result.into_rows_result().map_err(|error| MigrateError::cluster(task)(error.into()))
}

/// Sends a statement that may be repeated, with some retries while the cluster has no clear answer.
async fn ask(
    session: &Session,
    task: &'static str,
    statement: &str,
    values: impl SerializeRow,
) -> Result<QueryResult, MigrateError> {
    let mut tries = 1;
    loop {
        match session.query_unpaged(once(statement), &values).await {
            Ok(result) => return Ok(result),
            Err(error) if tries == TRIES || !may_pass(&error) => return Err(MigrateError::cluster(task)(error.into())),
            Err(_) => sleep(LOOK_AGAIN * tries).await,
        }
        tries += 1;
    }
}

/// Whether a retry may succeed: not after a refusal because of the statement itself or of permissions.
fn may_pass(error: &ExecutionError) -> bool {
    let attempt = match error {
        ExecutionError::BadQuery(_) => return false,
        ExecutionError::LastAttemptError(attempt)
        | ExecutionError::PrepareError(PrepareError::AllAttemptsFailed { first_attempt: attempt }) => attempt,
        _ => return true,
    };
    !matches!(attempt, RequestAttemptError::DbError(DbError::SyntaxError | DbError::Unauthorized, _))
}

/// A statement that the driver sends once, so that the meaning of an error is certain.
fn once(statement: &str) -> Statement {
    let mut statement = Statement::new(statement);
    statement.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
    statement.set_request_timeout(Some(STATEMENT_TIMEOUT));
    statement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tablets_are_off_only_if_they_do_not_support_lwts() {
        for (features, is_off) in [
            (None, false),
            (Some(""), false),
            (Some("LWT,TABLETS"), true),
            (Some("LWT, TABLETS ,VIEWS"), true),
            (Some("TABLETS,LWT_WITH_TABLETS"), false),
            (Some("TABLETS_MERGE"), false),
        ] {
            let statement = make_keyspace("signpost", "dc1", 3, features);
            assert_eq!(statement.ends_with(" AND tablets = {'enabled': false}"), is_off, "{features:?}");
        }
    }

    #[test]
    fn a_keyspace_has_its_copies_in_the_datacenter_by_its_name() {
        let statement = make_keyspace("signpost", "o'hare", 2, None);
        assert!(statement.ends_with("'NetworkTopologyStrategy', 'o''hare': 2}"), "{statement}");
    }

    #[test]
    fn tables_have_ids_of_their_own_in_each_keyspace() {
        let id = table_id("a", "migrations");
        assert_eq!(id, table_id("a", "migrations"));
        assert_ne!(id, table_id("a", "migration_lock"));
        assert_ne!(id, table_id("b", "migrations"));
    }
}
