//! Every statement, prepared once, with its kind.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, try_join_all};
use scylla::errors::PrepareError;
use scylla::statement::prepared::PreparedStatement;

use super::session::{Cql, StatementKind};
use crate::store::records::links::{ChangedLinkRow, LinkRow, NewLinkRow};

macro_rules! statements {
    ($($kind:ident $name:ident: $text:expr;)*) => {
        /// All prepared statements, by what they do.
        pub struct Statements {
            $(pub $name: PreparedStatement,)*
        }

        impl Statements {
            /// Prepares them all, at once. The futures are in memory of their own: together they would be too large for
            /// a thread's stack.
            pub async fn prepare(cql: &Cql) -> Result<Self, PrepareError> {
                let preparing: Vec<BoxFuture<'_, _>> = vec![$(cql.prepare(StatementKind::$kind, $text).boxed(),)*];
                let mut prepared = try_join_all(preparing).await?.into_iter();
                // There are as many as fields.
                Ok(Self { $($name: prepared.next().ok_or(PrepareError::PreparedStatementIdsMismatch)?,)* })
            }
        }
    };
}

/// All hits by device, then those of bots among them.
const COUNTS: &str = "desktop, mobile, tablet, bots_desktop, bots_mobile, bots_tablet";

statements! {
    Read ready: "SELECT value FROM marks WHERE name = ?";
    SettlingRead name: "SELECT value FROM names WHERE name = ?";
    Lwt put_name: "INSERT INTO names (name, value) VALUES (?, ?) IF NOT EXISTS";
    Read mark: "SELECT value FROM marks WHERE name = ?";
    // Idempotent: the value is the timestamp.
    Write raise_mark: "UPDATE marks USING TIMESTAMP ? SET value = ? WHERE name = ?";

    Read link: format!("SELECT {} FROM links WHERE id = ?", LinkRow::COLUMNS);
    SettlingRead link_claim: "SELECT claim FROM links WHERE id = ?";
    Lwt create_link: NewLinkRow::insert();
    // Not the row: it blocks a late insert of the same link.
    Lwt drop_link: format!("DELETE {} FROM links WHERE id = ? IF claim = ?", LinkRow::VALUES);
    SettlingRead link_remains: "SELECT owner, slug, kept_for, revision FROM links WHERE id = ?";
    SettlingRead link_edits: "SELECT owner, revision, edits FROM links WHERE id = ?";
    Lwt change_link: ChangedLinkRow::update();
    Read link_name: "SELECT link, owner, state, revision, claim, since FROM link_names WHERE domain = ? AND name = ?";
    SettlingRead link_name_settled: "SELECT link, owner, state, revision, claim, since FROM link_names WHERE domain = ? AND name = ?";
    Lwt take_link_name: "INSERT INTO link_names (domain, name, owner, state, revision, claim, since) VALUES (?, ?, ?, ?, ?, ?, ?) \
                         IF NOT EXISTS";
    Lwt retake_link_name: "UPDATE link_names SET owner = ?, state = ?, revision = ?, claim = ?, since = ? \
                           WHERE domain = ? AND name = ? IF claim = ?";
    Lwt set_link_name: "UPDATE link_names SET link = ?, owner = ?, state = ?, revision = ?, claim = ? \
                        WHERE domain = ? AND name = ? IF claim = ?";
    Lwt import_link_name: "INSERT INTO link_names (domain, name, link, owner, state, revision, claim) VALUES (?, ?, ?, ?, ?, ?, ?) \
                           IF NOT EXISTS";
    Lwt free_link_name: "DELETE FROM link_names WHERE domain = ? AND name = ? IF claim = ?";
    Read link_revision: "SELECT record FROM link_revisions WHERE link = ? AND revision = ?";
    Read count_link_revisions: "SELECT COUNT(*) FROM link_revisions WHERE link = ?";
    // Idempotent: a revision never changes.
    Write put_link_revision: "INSERT INTO link_revisions (link, revision, record) VALUES (?, ?, ?)";
    // Idempotent and independent of the order: the link's revision is the timestamp.
    Write put_link_time: "INSERT INTO link_times (kind, day, part, at, link, name) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    Write drop_link_time: "DELETE FROM link_times USING TIMESTAMP ? \
                           WHERE kind = ? AND day = ? AND part = ? AND at = ? AND link = ?";
    Write put_link_time_day: "INSERT INTO link_time_days (kind, day) VALUES (?, ?)";
    Read link_time_days: "SELECT day FROM link_time_days WHERE kind = ? AND day >= ? AND day <= ?";
    Write drop_link_time_day: "DELETE FROM link_time_days USING TIMESTAMP ? WHERE kind = ? AND day = ?";
    Read link_times: "SELECT at, link, name, WRITETIME(name) FROM link_times WHERE kind = ? AND day = ? AND part = ? \
                      AND (at, link) > (?, ?) AND (at, link) < (?, ?) LIMIT ?";
    // Idempotent and independent of the order: the link's revision is the timestamp.
    Write put_listed_link: "INSERT INTO link_lists (kind, owner, value, bucket, part, created_at, link, revision) \
                            VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    Write drop_listed_link: "DELETE FROM link_lists USING TIMESTAMP ? WHERE kind = ? AND owner = ? AND value = ? AND bucket = ? \
                             AND part = ? AND created_at = ? AND link = ?";
    Write put_link_list_bucket: "INSERT INTO link_list_buckets (kind, owner, value, bucket) VALUES (?, ?, ?, ?)";
    Read newest_link_list_buckets: "SELECT bucket FROM link_list_buckets WHERE kind = ? AND owner = ? AND value = ? \
                                    AND bucket >= ? AND bucket <= ? ORDER BY bucket DESC LIMIT ?";
    Read oldest_link_list_buckets: "SELECT bucket FROM link_list_buckets WHERE kind = ? AND owner = ? AND value = ? \
                                    AND bucket >= ? AND bucket <= ? LIMIT ?";
    Read newest_links: "SELECT created_at, link, revision FROM link_lists WHERE kind = ? AND owner = ? AND value = ? \
                        AND bucket = ? AND part = ? AND (created_at, link) > (?, ?) AND (created_at, link) < (?, ?) \
                        ORDER BY created_at DESC, link DESC LIMIT ?";
    Read oldest_links: "SELECT created_at, link, revision FROM link_lists WHERE kind = ? AND owner = ? AND value = ? \
                        AND bucket = ? AND part = ? AND (created_at, link) > (?, ?) AND (created_at, link) < (?, ?) LIMIT ?";
    Write put_link_to: "INSERT INTO links_to (target, month, owner, created_at, link, revision) VALUES (?, ?, ?, ?, ?, ?) \
                        USING TIMESTAMP ?";
    Write drop_link_to: "DELETE FROM links_to USING TIMESTAMP ? WHERE target = ? AND month = ? AND owner = ? AND created_at = ? \
                         AND link = ?";
    Read newest_links_to: "SELECT created_at, link, revision FROM links_to WHERE target = ? AND month = ? \
                           AND (owner, created_at, link) > (?, ?, ?) AND (owner, created_at, link) < (?, ?, ?) \
                           ORDER BY owner DESC, created_at DESC, link DESC LIMIT ?";
    Read oldest_links_to: "SELECT created_at, link, revision FROM links_to WHERE target = ? AND month = ? \
                           AND (owner, created_at, link) > (?, ?, ?) AND (owner, created_at, link) < (?, ?, ?) LIMIT ?";
    Write put_slug: "INSERT INTO slugs_of (owner, first_two, name, link, created_at, revision) VALUES (?, ?, ?, ?, ?, ?) \
                     USING TIMESTAMP ?";
    Write drop_slug: "DELETE FROM slugs_of USING TIMESTAMP ? WHERE owner = ? AND first_two = ? AND name = ? AND link = ?";
    Read slugs: "SELECT name, link, created_at, revision FROM slugs_of WHERE owner = ? AND first_two = ? \
                 AND (name, link) > (?, ?) AND (name, link) < (?, ?) LIMIT ?";
    SettlingRead link_list_fill: "SELECT place, is_done, holder, beat FROM link_list_fill WHERE job = 1";
    Lwt begin_link_list_fill: "INSERT INTO link_list_fill (job, holder, beat) VALUES (1, ?, 0) IF NOT EXISTS";
    Lwt take_link_list_fill: "UPDATE link_list_fill SET holder = ?, beat = ? WHERE job = 1 IF holder = ? AND beat = ?";
    Lwt move_link_list_fill: "UPDATE link_list_fill SET place = ?, is_done = ?, beat = ? WHERE job = 1 IF holder = ? AND beat = ?";
    Lwt restart_link_list_fill: "UPDATE link_list_fill SET place = null, is_done = false, holder = ?, beat = ? WHERE job = 1 \
                                 IF holder = ? AND beat = ?";
    Read links_to_list: format!("SELECT token(id), {} FROM links WHERE token(id) > ? LIMIT 500", LinkRow::COLUMNS);
    Read months_of_link: "SELECT month FROM link_months WHERE link = ?";
    Write drop_labels_of_link: "DELETE FROM link_labels USING TIMESTAMP ? WHERE link = ? AND month = ?";
    Write drop_months_of_link: "DELETE FROM link_months WHERE link = ?";
    Write drop_days_of_link: "DELETE FROM link_days USING TIMESTAMP ? WHERE link = ?";
    Read lives: "SELECT life, level, seq FROM lives WHERE bucket = 0";
    Write put_life: "INSERT INTO lives (bucket, life, level, seq) VALUES (0, ?, ?, ?)";
    Write put_link_change: "INSERT INTO link_changes (life, seq, name, link) VALUES (?, ?, ?, ?)";
    Read link_changes: "SELECT seq, name, link FROM link_changes WHERE life = ? AND seq > ? LIMIT 1000";
    Read recent_link_changes: "SELECT name, link FROM link_changes WHERE life = ? AND seq > ? ORDER BY seq DESC LIMIT 1000";
    Read last_link_change: "SELECT seq FROM link_changes WHERE life = ? AND seq > ? ORDER BY seq DESC LIMIT 1";
    Read links_used: "SELECT used FROM link_quotas WHERE owner = ? AND month = ? LIMIT 1";
    SettlingRead link_quota: "SELECT process, used, claim FROM link_quotas WHERE owner = ? AND month = ?";
    SettlingRead link_quota_once: "SELECT used, once FROM link_quotas WHERE owner = ? AND month = ?";
    Lwt claim_links_once: "UPDATE link_quotas SET used = ?, claim = ?, once = ? \
                           WHERE owner = ? AND month = ? AND process = ? IF used = ?";
    Lwt claim_links: "UPDATE link_quotas SET used = ?, claim = ? WHERE owner = ? AND month = ? AND process = ? IF used = ?";

    SettlingRead once: "SELECT fingerprint, claim, begun_at, holder, WRITETIME(holder) AS held_since, plan, counted, used, \
                        status, answer FROM idempotency WHERE owner = ? AND endpoint = ? AND key = ?";
    Read once_seen: "SELECT fingerprint, claim, begun_at, holder, WRITETIME(holder) AS held_since, plan, counted, used, \
                        status, answer FROM idempotency WHERE owner = ? AND endpoint = ? AND key = ?";
    Lwt begin_once: "INSERT INTO idempotency (owner, endpoint, key, fingerprint, claim, begun_at, holder) \
                     VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS";
    Lwt take_over_once: "UPDATE idempotency USING TTL ? SET holder = ? WHERE owner = ? AND endpoint = ? AND key = ? \
                         IF holder = ? AND answer = null";
    Lwt plan_once: "UPDATE idempotency USING TTL ? SET plan = ? WHERE owner = ? AND endpoint = ? AND key = ? IF holder = ?";
    Lwt count_once: "UPDATE idempotency USING TTL ? SET counted = ?, used = ? \
                     WHERE owner = ? AND endpoint = ? AND key = ? IF claim = ?";
    Lwt answer_once: "UPDATE idempotency USING TTL ? SET status = ?, answer = ? \
                      WHERE owner = ? AND endpoint = ? AND key = ? IF holder = ?";
    Lwt end_once: "DELETE FROM idempotency WHERE owner = ? AND endpoint = ? AND key = ? IF holder = ?";

    Read key: "SELECT record FROM keys WHERE id = ?";
    SettlingRead key_settled: "SELECT record FROM keys WHERE id = ?";
    Lwt create_key: "INSERT INTO keys (id, revision, record) VALUES (?, ?, ?) IF NOT EXISTS";
    Lwt update_key: "UPDATE keys SET revision = ?, record = ? WHERE id = ? IF revision = ?";
    // Only if there is no record: no creation of this key can write one any more.
    Lwt bar_key: "INSERT INTO keys (id, revision) VALUES (?, 0) IF NOT EXISTS";
    SettlingRead child_list: "SELECT turn, keys, closed FROM key_children WHERE maker = ?";
    Lwt list_child: "UPDATE key_children SET turn = ?, keys = ? WHERE maker = ? IF turn = ?";
    Lwt close_list: "UPDATE key_children SET turn = ?, closed = true WHERE maker = ? IF turn = ?";
    Read key_of_secret: "SELECT key FROM key_secrets WHERE secret_hash = ?";
    // Idempotent and independent of the order: a key's revision is the timestamp.
    Write put_secret: "INSERT INTO key_secrets (secret_hash, key) VALUES (?, ?) USING TIMESTAMP ?";
    Write drop_secret: "DELETE FROM key_secrets USING TIMESTAMP ? WHERE secret_hash = ?";
    Write put_view: "INSERT INTO key_views (viewer, key) VALUES (?, ?) USING TIMESTAMP ?";
    Write drop_view: "DELETE FROM key_views USING TIMESTAMP ? WHERE viewer = ? AND key = ?";
    Read views: "SELECT key FROM key_views WHERE viewer = ? LIMIT ?";
    Read views_after: "SELECT key FROM key_views WHERE viewer = ? AND key < ? LIMIT ?";
    // The time of the use is the timestamp: the latest stays.
    Write note_use: "INSERT INTO key_uses (key, used_at) VALUES (?, ?) USING TIMESTAMP ?";
    Read key_use: "SELECT used_at FROM key_uses WHERE key = ?";

    Read hit_cursor: "SELECT begun, counted FROM hit_cursors WHERE writer = ?";
    // The position in the journal is the timestamp, and only one node writes these rows: the same batch writes the same
    // values.
    Write begin_batch: "UPDATE hit_cursors USING TIMESTAMP ? SET begun = ? WHERE writer = ?";
    Write end_batch: "UPDATE hit_cursors USING TIMESTAMP ? SET counted = ? WHERE writer = ?";
    Read own_link_day: format!("SELECT {COUNTS}, quarters, upto FROM link_days WHERE link = ? AND day = ? AND writer = ?");
    Read own_key_day: format!("SELECT {COUNTS}, quarters, upto FROM key_days WHERE key = ? AND day = ? AND writer = ?");
    Write put_link_day: format!("INSERT INTO link_days (link, day, writer, {COUNTS}, upto) \
                                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?");
    Write put_key_day: format!("INSERT INTO key_days (key, day, writer, {COUNTS}, upto) \
                                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?");
    Write put_link_quarters: "UPDATE link_days USING TTL ? AND TIMESTAMP ? SET quarters = ? \
                              WHERE link = ? AND day = ? AND writer = ?";
    Write put_key_quarters: "UPDATE key_days USING TTL ? AND TIMESTAMP ? SET quarters = ? \
                             WHERE key = ? AND day = ? AND writer = ?";
    Read link_days: format!("SELECT day, {COUNTS} FROM link_days WHERE link = ?");
    Read key_days: format!("SELECT day, {COUNTS} FROM key_days WHERE key = ?");
    Read link_days_between: format!("SELECT day, {COUNTS} FROM link_days WHERE link = ? AND day >= ? AND day < ?");
    Read key_days_between: format!("SELECT day, {COUNTS} FROM key_days WHERE key = ? AND day >= ? AND day < ?");
    Read link_quarters_between: format!("SELECT day, {COUNTS}, quarters FROM link_days WHERE link = ? AND day >= ? AND day < ?");
    Read key_quarters_between: format!("SELECT day, {COUNTS}, quarters FROM key_days WHERE key = ? AND day >= ? AND day < ?");
    Read own_sheet: "SELECT sheet, split, upto FROM hit_sheets WHERE subject = ? AND span = ? AND part = 0 AND at = ? AND writer = ?";
    Read own_sheet_parts: "SELECT part, sheet, split, upto FROM hit_sheets \
                           WHERE subject = ? AND span = ? AND part IN ? AND at = ? AND writer = ?";
    // A time to live of 0: it does not expire.
    Write put_sheet: "INSERT INTO hit_sheets (subject, span, part, at, writer, sheet, split, upto) \
                      VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?";
    Read sheets: "SELECT part, at, writer, sheet, split FROM hit_sheets \
                  WHERE subject = ? AND span = ? AND part IN ? AND at >= ? AND at < ?";
    Read sheet_places: "SELECT at FROM hit_sheets WHERE subject = ? AND span = ? AND part = 0";
    Write drop_sheets: "DELETE FROM hit_sheets USING TIMESTAMP ? WHERE subject = ?";
    // Those of nodes of 0.1.0.
    Read own_labels: "SELECT dimension, label, count, upto FROM link_labels WHERE link = ? AND month = ? AND writer = ?";
    Read months: "SELECT month FROM link_months WHERE link = ?";
    Read labels: "SELECT writer, dimension, label, count FROM link_labels WHERE link = ? AND month = ?";
    Read own_served: "SELECT count, upto FROM served_hits WHERE key = ? AND month = ? AND writer = ?";
    Write put_served: "INSERT INTO served_hits (key, month, writer, count, upto) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?";
    Read served: "SELECT count FROM served_hits WHERE key = ? AND month = ?";

    Read delivery: "SELECT state, counted, queue FROM deliveries WHERE link = ? AND day = ? AND delivery = ?";
    // The hit's time and the number of the attempt are the timestamp: a later attempt wins, the same one is idempotent.
    Write put_delivery: "INSERT INTO deliveries (link, day, delivery, state, queue) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?";
    // Of a later round than all before, which the quota has not counted.
    Write put_replayed: "INSERT INTO deliveries (link, day, delivery, state, queue, counted) VALUES (?, ?, ?, ?, ?, false) \
                         USING TIMESTAMP ?";
    // Only one process writes its sums, each time with a later timestamp.
    Write put_sums: "UPDATE deliveries USING TIMESTAMP ? SET sums[?] = ? WHERE link = ? AND day = ?";
    Read delivery_sums: "SELECT sums FROM deliveries WHERE link = ? AND day = ? LIMIT 1";
    Write mark_counted: "UPDATE deliveries USING TIMESTAMP ? SET counted = true WHERE link = ? AND day = ? AND delivery = ?";
    Read deliveries: "SELECT delivery, state, counted FROM deliveries WHERE link = ? AND day = ? AND delivery > ? LIMIT ?";
    // These rows are only added.
    Write put_delivery_day: "INSERT INTO delivery_days (link, day) VALUES (?, ?)";
    Read delivery_days: "SELECT day FROM delivery_days WHERE link = ? AND day >= ?";
    Read deliveries_back: "SELECT delivery, state FROM deliveries WHERE link = ? AND day = ? AND delivery >= ? AND delivery < ? \
                           ORDER BY delivery DESC LIMIT ?";
    // With the timestamp of the state.
    Write put_failed: "INSERT INTO failed_deliveries (link, day, delivery, replayed) VALUES (?, ?, ?, false) USING TIMESTAMP ?";
    Write note_replayed: "UPDATE failed_deliveries USING TIMESTAMP ? SET replayed = true \
                          WHERE link = ? AND day = ? AND delivery = ?";
    Read failed: "SELECT delivery, replayed FROM failed_deliveries WHERE link = ? AND day = ? AND delivery > ? LIMIT ?";
    Read failed_back: "SELECT delivery, replayed FROM failed_deliveries \
                       WHERE link = ? AND day = ? AND delivery >= ? AND delivery < ? \
                       ORDER BY delivery DESC LIMIT ?";
    SettlingRead replay_turn: "SELECT turn, queue, process FROM replays WHERE link = ?";
    Lwt take_replay_turn: "UPDATE replays SET turn = ?, queue = ?, process = ? WHERE link = ? IF turn = ?";
    Lwt end_replay_turn: "UPDATE replays SET process = ? WHERE link = ? IF turn = ? AND process = ?";
    Read failure_run: "SELECT claim, revision, run, counted FROM failure_runs WHERE link = ? AND place = ?";
    Read failure_runs: "SELECT place, claim, revision, run FROM failure_runs WHERE link = ?";
    SettlingRead failure_run_claim: "SELECT claim FROM failure_runs WHERE link = ? AND place = ?";
    Lwt put_failure_run: "UPDATE failure_runs USING TTL ? SET claim = ?, revision = ?, run = ?, counted = ? \
                          WHERE link = ? AND place = ? IF claim = ?";
    Lwt drop_failure_run: "DELETE FROM failure_runs WHERE link = ? AND place = ? IF claim = ?";
    Write drop_failure_runs: "DELETE FROM failure_runs WHERE link = ?";
    Read links_with_failure_runs: "SELECT DISTINCT link FROM failure_runs";
    Read live_link: "SELECT owner, revision FROM links WHERE id = ?";
    Read deliveries_used: "SELECT used FROM delivery_quotas WHERE owner = ? AND month = ? LIMIT 1";
    SettlingRead delivery_quota: "SELECT process, used, claim, deliveries FROM delivery_quotas WHERE owner = ? AND month = ?";
    Lwt claim_deliveries: "UPDATE delivery_quotas SET used = ?, claim = ?, deliveries = ? \
                           WHERE owner = ? AND month = ? AND process = ? IF used = ?";

    // The LWT that takes a queue over has the row as it was read as its condition: it is refused if the row has
    // changed.
    Read queues: "SELECT queue, node, holder, holder_node, beat, floor FROM queues WHERE part = 0";
    SettlingRead queue_holder: "SELECT holder FROM queues WHERE part = 0 AND queue = ?";
    Lwt open_queue: "INSERT INTO queues (part, queue, node, holder, holder_node, beat, floor) \
                     VALUES (0, ?, ?, ?, ?, 0, ?) IF NOT EXISTS";
    Lwt beat: "UPDATE queues SET beat = ?, floor = ? WHERE part = 0 AND queue = ? IF holder = ? AND beat = ?";
    Lwt adopt_queue: "UPDATE queues SET holder = ?, holder_node = ?, beat = ? \
                      WHERE part = 0 AND queue = ? IF holder = ? AND beat = ?";
    Lwt close_queue: "DELETE FROM queues WHERE part = 0 AND queue = ? IF holder = ?";
    Write put_bucket: "INSERT INTO queue_buckets (queue, bucket) VALUES (?, ?)";
    Read buckets: "SELECT bucket FROM queue_buckets WHERE queue = ? AND bucket >= ?";
    Write put_due: "INSERT INTO due (queue, bucket, due_at, delivery, round) VALUES (?, ?, ?, ?, ?)";
    Read due: "SELECT due_at, delivery, round FROM due WHERE queue = ? AND bucket = ? \
               AND (due_at, delivery) > (?, ?) AND (due_at, delivery) < (?, ?) LIMIT ?";

    // Only one process writes its rows. They expire after a window and a second of grace.
    Write put_window: "INSERT INTO windows (key, process, endpoint, admitted) VALUES (?, ?, ?, ?) \
                       USING TTL 61 AND TIMESTAMP ?";
    Read windows: "SELECT process, endpoint, admitted FROM windows WHERE key = ?";

    // Only one process writes its rows.
    Write put_hit_listener: "INSERT INTO hit_listeners (bucket, subject, life) VALUES (0, ?, ?)";
    Read hit_listeners: "SELECT subject FROM hit_listeners WHERE bucket = 0";
    Write put_live_hit_life: "INSERT INTO live_hit_lives (bucket, life) VALUES (0, ?)";
    Read live_hit_lives: "SELECT life FROM live_hit_lives WHERE bucket = 0";
    Write put_live_hits: "INSERT INTO live_hits (life, seq, hits) VALUES (?, ?, ?)";
    Read live_hits: "SELECT seq, hits FROM live_hits WHERE life = ? AND seq > ?";
    Write put_open_hit_streams: "INSERT INTO open_hit_streams (owner, life, streams) VALUES (?, ?, ?)";
    Read open_hit_streams: "SELECT life, streams FROM open_hit_streams WHERE owner = ?";
}
