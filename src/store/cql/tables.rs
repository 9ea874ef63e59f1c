//! All tables of the store.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::cluster::{Cluster, OpenError, forever};
use super::deliveries::Deliveries;
use super::delivery_quota::DeliveryQuotas;
use super::failure_runs::FailureRuns;
use super::hit_streams::HitStreams;
use super::hits::Hits;
use super::keys::CqlKeys;
use super::lease::Leases;
use super::link_feed::LinkFeed;
use super::link_list_fill::LinkListFill;
use super::links::CqlLinks;
use super::names::CqlNames;
use super::once::CqlOnce;
use super::session::ScyllaSettings;
use super::windows::Windows;
use crate::domain::hit::NodeId;
use crate::store::StoreError;

/// The tables, a field each.
pub struct CqlTables {
    pub cluster: Arc<Cluster>,
    pub names: Arc<CqlNames>,
    pub links: Arc<CqlLinks>,
    pub once: Arc<CqlOnce>,
    pub link_feed: Arc<LinkFeed>,
    pub list_fill: Arc<LinkListFill>,
    pub keys: CqlKeys,
    pub hits: Hits,
    pub hit_streams: HitStreams,
    pub leases: Arc<Leases>,
    pub deliveries: Arc<Deliveries>,
    pub delivery_quotas: DeliveryQuotas,
    pub failure_runs: Arc<FailureRuns>,
    pub windows: Windows,
}

impl CqlTables {
    pub async fn connect(settings: &ScyllaSettings, node: NodeId) -> Result<Self, OpenError> {
        let cluster = Arc::new(Cluster::connect(settings).await?);
        let names = Arc::new(CqlNames::new(&cluster));
        let link_feed = Arc::new(LinkFeed::new(&cluster));
        let leases = Arc::new(Leases::new(&cluster, node, &link_feed));
        let failure_runs = Arc::new(FailureRuns::new(&cluster));
        let deliveries = Arc::new(Deliveries::new(&cluster, &names, &leases, &failure_runs));
        let links = Arc::new(CqlLinks::new(&cluster, &link_feed, &failure_runs));
        Ok(Self {
            list_fill: Arc::new(LinkListFill::new(&links)),
            links,
            once: Arc::new(CqlOnce::new(&cluster)),
            link_feed,
            keys: CqlKeys::new(&cluster),
            hits: Hits::new(&cluster, &deliveries),
            hit_streams: HitStreams::new(&cluster),
            delivery_quotas: DeliveryQuotas::new(&cluster, &deliveries),
            failure_runs,
            windows: Windows::new(&cluster),
            names,
            leases,
            deliveries,
            cluster,
        })
    }

    /// Prepares the queues before the first request; may be called again after a failure.
    pub async fn begin(&self) -> Result<(), StoreError> {
        self.deliveries.read_first_kept_day().await?;
        self.link_feed.make_known().await?;
        self.leases.begin_queues().await?;
        self.link_feed.begin().await?;
        self.list_fill.begin().await;
        Ok(())
    }

    /// Starts the task that appends to the change feed.
    pub fn start_appending(&self) -> JoinHandle<()> {
        forever(&self.link_feed, LinkFeed::append_loop)
    }

    /// Starts the other tasks that run while the store is open: renew leases, take over queues, count buckets, reconnect.
    /// They are separate, so that the renewal of a lease never waits for the others.
    pub fn start_tasks(&self) -> Vec<JoinHandle<()>> {
        vec![
            forever(&self.leases, Leases::heartbeat_loop),
            forever(&self.deliveries, Deliveries::adoption_loop),
            forever(&self.deliveries, Deliveries::recount_loop),
            forever(&self.link_feed, LinkFeed::read_loop),
            forever(&self.link_feed, LinkFeed::level_loop),
            forever(&self.list_fill, LinkListFill::fill_loop),
            forever(&self.cluster, Cluster::reconnect_loop),
        ]
    }
}
