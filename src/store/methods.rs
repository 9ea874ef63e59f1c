//! The list of the store's methods, for stores that wrap another store in a field `behind`.

/// Passes all methods of a [`Store`](super::Store) to the macro of this name, by trait. `reads` and `writes` may fail.
/// `direct` methods need no request, and `memory` methods answer from memory alone. `ends` close the store.
macro_rules! store_methods {
    ($macro:ident) => {
        $macro! {
            Lifecycle {
                reads {
                    ready() -> Result<(), StoreError>;
                }
                writes {}
                direct {
                    driver_counts() -> Option<DriverCounts>;
                }
                memory {}
                ends { close; }
            }
            SharedNode {
                reads {
                    windows_elsewhere(windows: Vec<WindowId>) -> Result<Vec<WindowLog>, StoreError>;
                }
                writes {
                    put_if_absent(name: &'static str, value: Vec<u8>) -> Result<Vec<u8>, StoreError>;
                    note_start(now: Timestamp) -> Result<(), StoreError>;
                    share_windows(own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError>;
                }
                direct {
                    is_shared() -> bool;
                }
                memory {}
                ends {}
            }
            LinkStore {
                reads {
                    link(name: LinkName) -> Result<Option<Link>, StoreError>;
                    link_by_id(id: ShortId) -> Result<Option<Link>, StoreError>;
                    link_at(id: ShortId, revision: Revision) -> Result<Option<Link>, StoreError>;
                    expired_links(before: Timestamp, after: Option<ExpiredLink>, limit: usize) -> Result<Vec<ExpiredLink>, StoreError>;
                    list_links(query: LinkListQuery) -> Result<LinkListPage, StoreError>;
                }
                writes {
                    create_link(link: Link, limit: MonthlyLimit) -> Result<u64, CreateLinkError>;
                    create_links(new: NewLinks, limit: MonthlyLimit) -> Result<MadeLinks, StoreError>;
                    update_link(link: Link) -> Result<(), UpdateLinkError>;
                    delete_link(link: Link) -> Result<(), UpdateLinkError>;
                    remove_counts_of_deleted(before: Timestamp) -> Result<bool, StoreError>;
                    forget_expiry(expired: ExpiredLink) -> Result<(), StoreError>;
                }
                direct {
                    on_link_change(hook: LinkChangeHook) -> ();
                    link_changes_age() -> Option<Duration>;
                    link_lists_percent() -> u8;
                }
                memory {
                    definitely_absent(name: &LinkName) -> bool;
                    peek(name: &LinkName) -> Option<Destination>;
                }
                ends {}
            }
            OnceStore {
                reads {
                    look_up_once(request: OnceRequest) -> Result<Option<OnceState>, StoreError>;
                    cut_off_once(request: OnceRequest) -> Result<Option<Timestamp>, StoreError>;
                }
                writes {
                    begin_once(request: OnceRequest) -> Result<OnceState, StoreError>;
                    end_once(ticket: OnceTicket) -> Result<(), StoreError>;
                    create_links_once(ticket: OnceTicket, new: NewLinks, limit: MonthlyLimit, answer: AnswerOfLinks) -> Result<OnceDone<MadeLinks>, StoreError>;
                    create_key_once(ticket: OnceTicket, key: ApiKey, limit: KeyLimit, answer: AnswerOfKey) -> Result<OnceDone<ApiKey>, CreateKeyError>;
                    drop_answers(before: Timestamp) -> Result<bool, StoreError>;
                }
                direct {}
                memory {}
                ends {}
            }
            KeyStore {
                reads {
                    key(id: KeyId) -> Result<Option<ApiKey>, StoreError>;
                    key_by_secret(hash: SecretHash) -> Result<Option<ApiKey>, StoreError>;
                    keys_seen_by(viewer: KeyId, after: Option<KeyId>, limit: usize) -> Result<Vec<ApiKey>, StoreError>;
                    last_uses(keys: Vec<KeyId>) -> Result<Vec<Option<Timestamp>>, StoreError>;
                }
                writes {
                    create_key(key: ApiKey, limit: KeyLimit) -> Result<(), CreateKeyError>;
                    stop_key_creation(maker: KeyId) -> Result<(), StoreError>;
                    update_key(key: ApiKey) -> Result<(), UpdateKeyError>;
                    extend_key(key: ApiKey, limit: KeyLimit, now: Timestamp) -> Result<(), ExtendKeyError>;
                    note_key_use(uses: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError>;
                }
                direct {}
                memory {}
                ends {}
            }
            CountStore {
                reads {
                    hit_cursor(writer: NodeId) -> Result<HitCursor, StoreError>;
                    link_hits(id: ShortId, labels: Option<BotFilter>) -> Result<LinkHits, StoreError>;
                    series(of: HitSubject, range: SeriesRange, bots: BotFilter) -> Result<SeriesAnswer, StoreError>;
                    breakdown(of: HitSubject, dimension: Dimension, range: BreakdownRange) -> Result<Breakdown, StoreError>;
                    monthly_counts(key: KeyId, month: Month) -> Result<MonthlyCounts, StoreError>;
                }
                writes {
                    apply_hits(batch: Arc<HitBatch>) -> Result<Option<Timestamp>, StoreError>;
                    drop_sheets(before: Day) -> Result<bool, StoreError>;
                }
                direct {}
                memory {}
                ends {}
            }
            DeliveryStore {
                reads {
                    due_deliveries(now: Timestamp, after: Option<DuePlace>, limit: usize) -> Result<Vec<DueDelivery>, StoreError>;
                    pending_deliveries() -> Result<u64, StoreError>;
                    delivery_states(ids: Vec<DeliveryId>) -> Result<Vec<Option<DeliveryState>>, StoreError>;
                    delivery_summaries(link: ShortId, since: Day) -> Result<Vec<(u8, UrlSummary)>, StoreError>;
                    settled_deliveries(query: SettledQuery) -> Result<SettledPage, StoreError>;
                    deliveries(query: DeliveryQuery) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError>;
                }
                writes {
                    claim_delivery_quota(claims: Vec<QuotaClaim>) -> Result<Vec<bool>, StoreError>;
                    claim_test_quota(claim: TestClaim) -> Result<u64, StoreError>;
                    settle_deliveries(settlements: Vec<Settlement>) -> Result<(), StoreError>;
                    replay_deliveries(replay: Replay) -> Result<u64, StoreError>;
                    queue_first_tries(which: FirstTriesToQueue) -> Result<Option<Timestamp>, StoreError>;
                    drop_deliveries(before: Day) -> Result<bool, StoreError>;
                }
                direct {
                    keep_first_tries(room: usize) -> ();
                    take_first_tries() -> Vec<DueDelivery>;
                    on_adoption(hook: AdoptionHook) -> ();
                }
                memory {}
                ends {}
            }
            HitStreamStore {
                reads {
                    listened_subjects() -> Result<Vec<HitSubject>, StoreError>;
                    live_hits(after: Vec<NotesReadUpto>) -> Result<Vec<NotedHits>, StoreError>;
                    streams_elsewhere(owner: KeyId) -> Result<u32, StoreError>;
                }
                writes {
                    note_listeners(to: Vec<HitSubject>) -> Result<(), StoreError>;
                    note_live_hits(node: NodeId, entries: Vec<LiveEntry>) -> Result<(), StoreError>;
                    share_open_streams(owner: KeyId, open: u32) -> Result<(), StoreError>;
                }
                direct {}
                memory {}
                ends {}
            }
            SuspensionStore {
                reads {
                    suspensions(links: Vec<ShortId>) -> Result<Vec<Suspension>, StoreError>;
                }
                writes {
                    end_suspension(link: ShortId, place: u8) -> Result<(), StoreError>;
                    forget_failures() -> Result<(), StoreError>;
                }
                direct {
                    suspend_failing(rule: SuspensionRule) -> ();
                }
                memory {}
                ends {}
            }
        }
    };
}
