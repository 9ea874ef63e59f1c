//! What is the store's own on a CQL cluster.

use scylla::client::session_builder::SessionBuilder;
use scylla::routing::Token;
use signpost::store::scylla::session;

use crate::support::cluster;
use crate::support::keyspaces::Place;

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
