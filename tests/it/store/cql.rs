//! What is the store's own on a CQL cluster.

use futures_util::FutureExt;
use scylla::client::session_builder::SessionBuilder;
use scylla::routing::Token;
use signpost::store::cql::session;
use signpost::store::cql::transfer::ScyllaTransfer;
use signpost::store::records::export::RecordV1;
use signpost::store::transfer::{ExportSource, Section};
use signpost::store::{CreateLinkError, Lifecycle, LinkStore};

use super::samples::{key_id, link, node, short_id};
use crate::support::cluster;
use crate::support::keyspaces::{Keyspace, Place};

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn the_engine_of_one_node_answers_the_driver() {
    let cluster = cluster::cluster(1).await;
    let session = SessionBuilder::new().known_nodes(cluster.contact_points()).build().await.unwrap();

    let answer = session.query_unpaged("SELECT key FROM system.local", ()).await.unwrap();

    let (key,) = answer.into_rows_result().unwrap().single_row::<(String,)>().unwrap();
    assert_eq!(key, "local");
}

/// Else every statement takes the way over a node that need not have its rows.
#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn the_stores_session_knows_which_nodes_have_a_row() {
    let place = Place::fresh(cluster::cluster(1).await);
    place.migrate().await;

    let session = session::connect(&place.store_settings()).await.unwrap();

    let nodes = session.get_cluster_state().get_token_endpoints(&place.name, "links", Token::new(0));
    assert_eq!(nodes.len(), place.replication_factor);
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn what_is_left_of_a_link_that_was_given_up_is_no_link_and_keeps_its_id() {
    let keyspace = Keyspace::empty().await;
    let store = keyspace.open_store(node(1)).await;
    // It has begun, and goes on without its caller.
    assert!(store.create_link(link(1, key_id(1)), Some(5)).now_or_never().is_none());
    // Waits for it.
    store.close().await;
    let rows = keyspace.rows().await;
    let mut links = rows.iter().filter(|(table, _)| table == "links").map(|(_, row)| String::from_utf8_lossy(row));
    assert!(links.any(|row| row.contains(short_id(1).as_str())), "its row stays");

    let store = keyspace.open_store(node(1)).await;
    assert_eq!(store.link(short_id(1).into()).await.unwrap(), None);
    assert!(matches!(store.create_link(link(1, key_id(2)), None).await, Err(CreateLinkError::NameTaken)));
    assert_eq!(store.create_link(link(2, key_id(1)), Some(1)).await.unwrap(), 1);
    store.close().await;
    let transfer = ScyllaTransfer::open(&keyspace.store_settings()).await.unwrap();
    let exported = transfer.read_page(Section::Links, None).await.unwrap().records;
    let exported: Vec<String> =
        exported.iter().map(|record| serde_json::to_string(&RecordV1::from(record)).unwrap()).collect();
    assert!(exported.len() == 1 && exported[0].contains(short_id(2).as_str()), "{exported:?}");
}
