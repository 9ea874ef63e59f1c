//! What every store promises, a function a promise.
//!
//! A new store implements [`Ground`] and is named once more in `every_promise!`.

pub mod child_keys;
pub mod deliveries;
pub mod delivery_lists;
pub mod hit_ranges;
pub mod hit_streams;
pub mod hits;
pub mod keys;
pub mod link_batches;
pub mod link_changes;
pub mod link_lists;
pub mod link_names;
pub mod links;
pub mod once;
pub mod replays;
pub mod survival;
pub mod suspensions;
pub mod windows;

use std::sync::Arc;

use signpost::store::Store;

/// Where a store lives while a test lasts.
pub trait Ground {
    /// A place where nothing is kept yet.
    async fn fresh() -> Self;

    /// Opens the store that lives here. One that was opened before has been closed.
    async fn open(&self) -> Arc<dyn Store>;
}

/// Closes `store` and opens it again.
pub async fn reopened(ground: &impl Ground, store: Arc<dyn Store>) -> Arc<dyn Store> {
    store.close().await;
    drop(store);
    ground.open().await
}

/// Makes a test of each promise for the store that lives on a [`Ground`], each with the attributes that stand before it.
macro_rules! every_promise {
    (@each $attributes:tt $ground:ty: $($file:ident::$promise:ident)*) => {
        $($crate::store::conformance::every_promise! { @one $attributes $ground: $file::$promise })*
    };
    (@one [$(#[$attribute:meta])*] $ground:ty: $file:ident::$promise:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        $(#[$attribute])*
        async fn $promise() {
            use $crate::store::conformance::{Ground, $file};
            $file::$promise(&<$ground>::fresh().await).await;
        }
    };
    ($(#[$attribute:meta])* $ground:ty) => {
        $crate::store::conformance::every_promise! {
            @each [$(#[$attribute])*] $ground:
            links::a_link_is_read_back_as_it_was_created
            links::links_of_every_length_are_read_back
            links::a_taken_id_is_refused_and_nothing_is_counted
            links::a_thousand_creations_at_once_make_as_many_links_as_the_limit_says
            links::creations_of_one_id_at_once_make_one_link_and_count_one
            links::months_and_keys_are_counted_apart
            links::a_creation_refused_by_the_quota_leaves_nothing
            links::the_first_value_under_a_name_stays
            link_names::a_link_is_reached_by_its_slug_and_not_by_its_id
            link_names::of_fifty_creations_of_one_name_at_once_one_wins
            link_names::a_slug_of_the_form_of_an_unused_id_is_the_id
            link_names::ids_and_slugs_are_one_name_space
            link_names::the_name_of_a_deleted_link_is_kept_for_its_key
            link_names::no_id_is_used_again
            link_names::a_creation_may_get_a_name_that_is_kept_for_another_key
            link_names::of_creations_of_a_kept_name_at_once_one_wins
            link_names::a_creation_refused_by_the_quota_takes_no_name
            link_batches::links_made_together_are_read_back_as_they_were_created
            link_batches::links_made_together_take_the_quota_in_order
            link_batches::of_two_links_with_one_slug_made_together_the_first_has_it
            link_batches::a_link_made_together_with_others_gets_a_spare_id_in_the_place_of_a_taken_one
            link_batches::the_kept_name_of_a_deleted_link_can_be_made_together_with_others
            link_batches::calls_and_creations_at_once_make_as_many_links_as_the_limit_says
            link_batches::of_calls_with_the_same_slugs_at_once_each_name_is_made_once
            link_changes::a_change_of_all_that_can_change_is_read_back
            link_changes::a_change_is_seen_at_once
            link_changes::a_change_of_another_revision_is_refused
            link_changes::of_changes_of_one_revision_at_once_one_wins
            link_changes::a_deleted_link_is_gone
            link_changes::earlier_revisions_with_webhooks_are_kept
            link_changes::a_link_with_webhooks_has_so_many_changes_at_the_most
            link_changes::expired_links_come_in_the_order_of_their_expiry
            link_changes::counts_of_deleted_links_are_removed
            link_lists::a_walk_lists_each_link_once_by_the_time_of_its_creation
            link_lists::links_are_listed_by_tag_target_and_slug
            link_lists::lists_follow_changes_and_deletions
            link_lists::days_whose_links_are_all_deleted_are_passed_over
            link_lists::a_name_that_is_made_again_hides_no_slug_behind_it
            link_lists::links_made_together_and_refused_ones_are_listed_or_not
            link_lists::changes_during_a_walk_leave_out_no_link_and_show_none_twice
            keys::a_key_that_is_there_stays_as_it_is
            keys::a_key_is_changed_only_from_its_revision_before
            keys::of_two_changes_at_once_one_is_told_of_the_conflict
            keys::a_secret_finds_its_key_while_it_is_current_or_retiring
            keys::a_revoked_key_has_no_secret_and_is_in_no_list
            keys::a_key_sees_itself_and_all_below_it_newest_first
            keys::a_list_of_keys_goes_on_after_a_key_that_is_gone
            keys::the_time_of_the_last_use_never_goes_back
            child_keys::of_a_hundred_keys_made_at_once_as_many_are_made_as_the_limit_says
            child_keys::a_key_that_is_revoked_or_expired_makes_room_for_another
            child_keys::the_same_key_again_takes_no_second_place
            child_keys::keys_that_were_made_before_there_was_a_limit_count
            child_keys::a_limit_may_be_none_at_all_and_may_become_lower
            child_keys::a_thousand_keys_are_counted
            child_keys::a_key_that_was_stopped_or_revoked_makes_no_more_keys
            child_keys::a_key_is_made_before_its_maker_is_stopped_or_not_at_all
            child_keys::a_live_key_is_extended_in_its_place
            child_keys::an_expired_key_is_extended_where_the_limit_allows_one_more
            child_keys::keys_are_extended_below_a_limit_that_was_lowered_and_a_maker_that_was_stopped
            child_keys::of_creations_and_extensions_at_once_as_many_live_as_the_limit_says
            hits::a_batch_is_counted_once_however_often_it_comes
            hits::a_batch_that_does_not_begin_at_the_cursor_changes_nothing
            hits::writers_have_cursors_of_their_own_and_their_counts_add_up
            hits::days_and_labels_add_up_over_batches_and_months
            hits::hits_of_persons_and_of_bots_are_told_apart
            hits::labels_past_the_cap_count_as_other
            hits::hits_served_are_counted_by_key_and_month
            hit_ranges::series_and_breakdowns_are_as_in_a_model
            hit_ranges::labels_of_a_day_past_the_cap_count_as_other
            hit_ranges::ranges_of_what_has_no_hits_are_empty
            deliveries::a_batch_enqueues_its_deliveries_once
            deliveries::due_deliveries_come_by_time_and_go_on_after_a_cursor
            deliveries::a_retry_moves_the_due_time
            deliveries::a_try_is_written_down_once
            deliveries::a_settled_delivery_stays_as_it_is
            deliveries::a_delivery_never_sent_has_no_attempts
            deliveries::the_delivery_quota_is_exact_however_many_claim_at_once
            deliveries::a_claim_counts_once_however_often_it_comes
            deliveries::tests_of_webhooks_count_like_deliveries_up_to_the_quota
            deliveries::deliveries_are_counted_by_owner_and_month
            deliveries::those_that_are_pending_are_counted_whatever_becomes_of_them
            delivery_lists::a_list_is_of_one_link_newest_first_and_goes_on_after_a_delivery
            delivery_lists::a_list_of_one_status_leaves_out_the_others
            delivery_lists::a_list_begins_at_the_day_asked_for
            delivery_lists::summaries_add_up_the_days_of_each_url
            delivery_lists::failed_deliveries_that_were_replayed_cost_a_list_nothing
            delivery_lists::what_is_dropped_leaves_nothing_behind
            once::links_are_made_once_and_the_answer_is_kept
            once::what_makes_nothing_leaves_the_key_free
            once::of_many_attempts_at_once_one_is_done
            once::a_key_is_made_once_and_the_answer_is_kept
            once::answers_are_removed_when_they_are_old
            once::a_request_that_was_answered_is_answered_however_many_ask
            replays::a_replay_after_a_third_failure_is_due_at_once_and_has_all_attempts_anew
            replays::outcomes_and_claims_of_an_earlier_round_change_nothing
            replays::what_the_quota_has_refused_counts_for_the_first_time
            replays::of_replays_at_once_each_delivery_is_queued_by_one
            replays::settled_deliveries_are_found_oldest_first_and_page_by_page
            suspensions::a_url_is_suspended_after_failures_in_a_row_over_a_day
            suspensions::failures_are_counted_over_restarts_and_each_once
            suspensions::only_failures_in_a_row_count
            suspensions::without_a_rule_nothing_is_counted
            suspensions::a_time_without_a_rule_ends_all_that_was_counted
            suspensions::outcomes_that_are_written_together_count_in_their_order
            suspensions::a_test_ends_a_suspension_and_failures_count_anew
            suspensions::a_change_of_the_link_ends_its_suspensions
            hit_streams::hits_are_told_to_other_lives_where_stores_are_shared
            windows::what_a_store_publishes_of_windows_is_not_answered_to_itself
            windows::another_life_is_told_what_was_published_last_where_stores_are_shared
            survival::all_that_was_answered_is_there_after_opening_again
        }
    };
}
pub(super) use every_promise;
