//! The list of the store's methods, for what stands around a store: one with the field `behind`.

/// Hands the methods of [`Store`](super::Store) to the macro of this name: those that may fail, which read or write, and those
/// that are passed on as they are. `close` is not among them: not all do no more than to pass it on.
macro_rules! store_methods {
    ($macro:ident) => {
        $macro! {
            reads {
                ready() -> Result<(), StoreError>;
                link(id: ShortId) -> Result<Option<Link>, StoreError>;
                key(id: KeyId) -> Result<Option<ApiKey>, StoreError>;
                key_by_secret(hash: SecretHash) -> Result<Option<ApiKey>, StoreError>;
                keys_seen_by(viewer: KeyId, after: Option<KeyId>, limit: usize) -> Result<Vec<ApiKey>, StoreError>;
                last_uses(keys: Vec<KeyId>) -> Result<Vec<Option<Timestamp>>, StoreError>;
                hit_cursor(writer: NodeId) -> Result<HitCursor, StoreError>;
                link_hits(id: ShortId, with_labels: bool) -> Result<LinkHits, StoreError>;
                monthly_counts(key: KeyId, month: Month) -> Result<MonthlyCounts, StoreError>;
                due_deliveries(now: Timestamp, after: Option<DueDelivery>, limit: usize) -> Result<Vec<DueDelivery>, StoreError>;
                pending_deliveries() -> Result<u64, StoreError>;
                delivery_states(ids: Vec<DeliveryId>) -> Result<Vec<Option<DeliveryState>>, StoreError>;
                delivery_summaries(link: ShortId, since: Day) -> Result<Vec<(u8, UrlSummary)>, StoreError>;
                deliveries(query: DeliveryQuery) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError>;
                windows_elsewhere(windows: Vec<WindowId>) -> Result<Vec<WindowLog>, StoreError>;
            }
            writes {
                put_if_absent(name: &'static str, value: Vec<u8>) -> Result<Vec<u8>, StoreError>;
                create_link(link: Link, limit: MonthlyLimit) -> Result<u64, CreateLinkError>;
                create_key(key: ApiKey, limit: KeyLimit) -> Result<(), CreateKeyError>;
                stop_key_creation(maker: KeyId) -> Result<(), StoreError>;
                update_key(key: ApiKey) -> Result<(), UpdateKeyError>;
                note_key_use(uses: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError>;
                apply_hits(batch: Arc<HitBatch>) -> Result<(), StoreError>;
                claim_delivery_quota(claims: Vec<QuotaClaim>) -> Result<Vec<bool>, StoreError>;
                settle_deliveries(settlements: Vec<Settlement>) -> Result<(), StoreError>;
                drop_deliveries(before: Day) -> Result<bool, StoreError>;
                share_windows(own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError>;
            }
            passed {
                fn is_shared(&self) -> bool {
                    self.behind.is_shared()
                }

                fn driver_counts(&self) -> Option<DriverCounts> {
                    self.behind.driver_counts()
                }

                fn on_adoption(&self, tell: AdoptionHook) {
                    self.behind.on_adoption(tell);
                }
            }
        }
    };
}
