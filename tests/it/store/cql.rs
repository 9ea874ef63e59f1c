//! What is the store's own on a CQL cluster.

use scylla::client::session_builder::SessionBuilder;

use crate::support::cluster;

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn the_engine_of_one_node_answers_the_driver() {
    let cluster = cluster::cluster(1).await;
    let session = SessionBuilder::new().known_nodes(cluster.contact_points()).build().await.unwrap();

    let answer = session.query_unpaged("SELECT key FROM system.local", ()).await.unwrap();

    let (key,) = answer.into_rows_result().unwrap().single_row::<(String,)>().unwrap();
    assert_eq!(key, "local");
}
