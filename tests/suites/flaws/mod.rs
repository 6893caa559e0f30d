//! Every flaw of a backend breaks the simplest scenario that it concerns, and the scenario passes without it. The chaos
//! tests look for these flaws in random histories and rely on this.
//!
//! The scenarios run in memory on paused time, so that each has one outcome.

mod leases;
mod numbers;
mod requests;
mod stage;
mod waiters;

use std::pin::Pin;

use distlock::MemoryServer;
use distlock_tests::faults::Faults;
use distlock_tests::flaws::Flaw;

use self::leases::{
    detached_hold_is_attached_once, extended_lease_keeps_others_out,
    grant_answered_late_ends_before_another_gets_in, hold_after_a_lost_one_of_its_key_is_kept,
    hold_ends_before_its_lease_by_the_margin, hold_handed_over_after_its_loss_is_told_soon,
    hold_handed_over_stays_in_the_server, hold_outlives_each_server_that_forgets_it_in_turn,
    hold_that_a_restart_took_away_is_told_soon, hold_that_another_has_taken_is_found_lost,
    hold_that_nobody_releases_ends_with_its_lease,
    holder_is_told_soon_when_its_own_client_is_granted_the_key,
    renewal_answered_late_ends_before_another_gets_in, renewal_that_failed_once_is_tried_again,
    waiter_that_hears_of_a_loss_has_it_told_soon,
};
use self::numbers::{
    attempt_that_comes_after_the_release_takes_no_permit,
    change_whose_answer_was_lost_is_made_once, count_sent_twice_counts_once,
    permit_whose_release_is_sent_twice_is_one_permit,
};
use self::requests::{
    attempt_beside_a_granted_one_is_refused_by_the_holder,
    attempt_sent_twice_is_freed_by_one_release, attempt_that_a_hung_server_carries_out_is_ended,
    attempt_that_timed_out_is_ended, hold_that_comes_back_after_its_release_is_ended,
    keys_acquired_at_once_are_all_taken, keys_released_at_once_are_all_free,
    late_release_leaves_the_next_owner_alone, minority_does_not_grant,
    token_of_another_client_is_exceeded, two_tasks_of_a_client_exclude_each_other,
};
use self::stage::Stage;
use self::waiters::{
    reader_waits_for_the_writer, release_just_after_subscribing_is_heard,
    waiter_after_a_fixed_lease_gets_one_that_is_kept, waiter_behind_one_that_is_not_polled_gets_in,
    waiter_dropped_after_wake_passes_it_on, waiter_for_two_hot_keys_gets_both,
    waiter_gets_a_key_that_was_deleted_without_a_message,
    waiter_gets_a_key_whose_lease_was_cut_short_without_a_message,
    waiter_just_after_another_gave_up_hears, waiter_that_came_first_is_first,
    waiter_tries_when_its_subscription_stands_again,
};

/// What plays it is compiled once, whatever the type of its future.
type Scenario = for<'a> fn(&'a Stage) -> Pin<Box<dyn Future<Output = bool> + 'a>>;

/// The scenario is as it should be without the flaw, and is not with it.
fn shows(flaw: Flaw, scenario: Scenario) {
    for flaw in [None, Some(flaw)] {
        let right = plays(flaw, scenario);
        assert_eq!(right, flaw.is_none(), "with {flaw:?}");
    }
}

/// Does the scenario go as it should?
fn plays(flaw: Option<Flaw>, scenario: Scenario) -> bool {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let stage = Stage {
        server: MemoryServer::new(),
        faults: Faults::new(),
        flaw,
    };
    runtime.block_on(scenario(&stage))
}

/// A test for each line: what should be, and the flaw that makes it otherwise.
macro_rules! scenarios {
    ($($flaw:ident: $scenario:ident,)*) => {
        mod scenario {
            use distlock_tests::flaws::Flaw;
            $(#[test] fn $scenario() { super::shows(Flaw::$flaw, |stage| Box::pin(super::$scenario(stage))); })*
        }
        const SHOWN: &[Flaw] = &[$(Flaw::$flaw),*];
    };
}

scenarios! {
    ReleaseWithoutOwnerTest: late_release_leaves_the_next_owner_alone,
    RenewWithoutOwnerTest: hold_that_another_has_taken_is_found_lost,
    NoTryAfterSubscribe: release_just_after_subscribing_is_heard,
    LeaseCutShort: grant_answered_late_ends_before_another_gets_in,
    LeaseCutShort: renewal_answered_late_ends_before_another_gets_in,
    DeltaInsteadOfCount: attempt_sent_twice_is_freed_by_one_release,
    NoCleanUp: attempt_that_timed_out_is_ended,
    RenewalNotRetried: renewal_that_failed_once_is_tried_again,
    UnsubscribeRace: waiter_just_after_another_gave_up_hears,
    ReentryByKey: two_tasks_of_a_client_exclude_each_other,
    TtlForgotten: hold_that_nobody_releases_ends_with_its_lease,
    NoTryAfterReconnect: waiter_tries_when_its_subscription_stands_again,
    ChangeCountsAgain: count_sent_twice_counts_once,
    RequestForgotten: change_whose_answer_was_lost_is_made_once,
    EndForgotten: attempt_that_comes_after_the_release_takes_no_permit,
    PermitsGivenAgain: permit_whose_release_is_sent_twice_is_one_permit,
    RefusalTakenForGrant: minority_does_not_grant,
    ReaderBesideWriter: reader_waits_for_the_writer,
    PlaceNotKept: waiter_that_came_first_is_first,
    TokenFromMemory: token_of_another_client_is_exceeded,
    HandOverNotConfirmed: hold_handed_over_after_its_loss_is_told_soon,
    HandOverNotConfirmed: waiter_that_hears_of_a_loss_has_it_told_soon,
    HandOverNotConfirmed: holder_is_told_soon_when_its_own_client_is_granted_the_key,
    ReconnectUntold: hold_that_a_restart_took_away_is_told_soon,
    LookSeesNothing: waiter_gets_a_key_that_was_deleted_without_a_message,
    LookSeesNothing: waiter_gets_a_key_whose_lease_was_cut_short_without_a_message,
    ReleaseNotRepeated: hold_that_comes_back_after_its_release_is_ended,
    HoldersUnseen: hold_outlives_each_server_that_forgets_it_in_turn,
    SeveralKeysByTries: waiter_for_two_hot_keys_gets_both,
    UnpolledKeepsPlace: waiter_behind_one_that_is_not_polled_gets_in,
    DoubtEndsWithLease: attempt_that_a_hung_server_carries_out_is_ended,
    ExtensionForgotten: extended_lease_keeps_others_out,
    AttachedAgain: detached_hold_is_attached_once,
    MarginForgotten: hold_ends_before_its_lease_by_the_margin,
    AnswerOfAnother: attempt_beside_a_granted_one_is_refused_by_the_holder,
    BatchCutInTheMiddle: keys_acquired_at_once_are_all_taken,
    BatchCutInTheMiddle: keys_released_at_once_are_all_free,
}

/// Scenarios that no flaw of a backend breaks: the client alone could be wrong there.
macro_rules! flawless {
    ($($scenario:ident,)*) => {
        mod flawless {
            $(#[test] fn $scenario() { assert!(super::plays(None, |stage| Box::pin(super::$scenario(stage)))); })*
        }
    };
}

flawless! {
    waiter_dropped_after_wake_passes_it_on,
    hold_after_a_lost_one_of_its_key_is_kept,
    waiter_after_a_fixed_lease_gets_one_that_is_kept,
    hold_handed_over_stays_in_the_server,
}

#[test]
fn every_flaw_is_shown() {
    for flaw in Flaw::ALL {
        let is_shown = SHOWN.contains(&flaw) || Flaw::ON_REDIS.contains(&flaw);
        assert!(is_shown, "{flaw:?} has no scenario");
    }
}
