//! Whether the scenarios find what they are for: each is played again with mistakes that a lock library could contain, which are
//! those that the other tests of the workspace look for as well. `FLAW=NAME` has the clients of all scenarios make one of them.

use std::env;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;

use crate::client::builder::Builder;
use crate::error::Error;
use crate::guard::Guard;

use self::flaws::{Flaw, Flawed};

// The package has none of this: the flaws are no part of the library.
#[allow(dead_code, unreachable_pub, reason = "another crate uses the rest")]
#[path = "../../../../tests/harness/backends/src/flaws/mod.rs"]
mod flaws;

/// A flaw, a scenario that finds it, and one of the texts that its panic has.
type Found = (Flaw, &'static str, &'static [&'static str]);

/// A hold ends before its guard.
const LOST: &[&str] = &["the server no longer knows the hold"];

/// Two owners hold a key. The second of them to release has lost it.
const TWO: &[&str] = &[
    "are inside",
    "is inside beside",
    "the server no longer knows the hold",
];

/// Somebody waits for what does not come.
const NEVER: &[&str] = &["all wait, and the next timer is at"];

/// A number is not what it should be.
const NUMBER: &[&str] = &["assertion `left == right` failed"];

/// `tests/README.md` has a row for each.
const FOUND: &[Found] = &[
    (
        Flaw::ReleaseWithoutOwnerTest,
        "outages::late_release_leaves_the_next_owners_alone",
        LOST,
    ),
    (
        Flaw::RenewWithoutOwnerTest,
        "outages::holder_and_waiter_are_told_soon_when_their_server_comes_back_without_the_hold",
        NEVER,
    ),
    (
        Flaw::NoTryAfterSubscribe,
        "messages::release_that_another_client_waits_for_wakes_it",
        NEVER,
    ),
    (
        Flaw::LeaseCutShort,
        "outages::hold_outlasts_an_outage_that_is_shorter_than_its_lease",
        LOST,
    ),
    (
        Flaw::NoCleanUp,
        "outages::command_whose_answer_is_lost_is_sent_again_and_counts_once",
        NEVER,
    ),
    (
        Flaw::RenewalNotRetried,
        "outages::renewal_that_fails_is_tried_again_and_the_hold_is_kept",
        &["kept.is_held()"],
    ),
    (
        Flaw::UnsubscribeRace,
        "messages::waiter_that_comes_just_after_another_gave_up_hears_of_the_release",
        NEVER,
    ),
    (
        Flaw::ReentryByKey,
        "hand_over::tries_beside_a_release_answer_busy_or_hold",
        TWO,
    ),
    (
        Flaw::TtlForgotten,
        "outages::key_that_nobody_releases_is_free_when_its_lease_ends",
        NEVER,
    ),
    (
        Flaw::NoTryAfterReconnect,
        "outages::waiter_tries_again_when_its_server_comes_back",
        NEVER,
    ),
    (
        Flaw::ChangeCountsAgain,
        "outages::change_of_a_number_whose_answer_is_lost_is_made_once",
        NUMBER,
    ),
    (
        Flaw::RequestForgotten,
        "outages::change_of_a_number_whose_answer_is_lost_is_made_once",
        NUMBER,
    ),
    (
        Flaw::RefusalTakenForGrant,
        "messages::release_that_another_client_waits_for_wakes_it",
        TWO,
    ),
    (
        Flaw::ReaderBesideWriter,
        "keys::readers_share_and_a_writer_is_alone",
        TWO,
    ),
    (
        Flaw::PlaceNotKept,
        "messages::fair_waiter_that_came_first_is_first",
        NEVER,
    ),
    (
        Flaw::HandOverNotConfirmed,
        "outages::hold_that_is_handed_over_after_the_server_lost_it_is_told_soon",
        &["it is held and not there"],
    ),
    (
        Flaw::ReconnectUntold,
        "outages::holder_and_waiter_are_told_soon_when_their_server_comes_back_without_the_hold",
        NEVER,
    ),
    (
        Flaw::LookSeesNothing,
        "outages::waiter_gets_a_key_that_was_deleted_without_a_message",
        NEVER,
    ),
    (
        Flaw::UnpolledKeepsPlace,
        "hand_over::waiter_that_is_left_alone_lets_the_next_one_pass_and_comes_back",
        NEVER,
    ),
    (
        Flaw::TokenFromMemory,
        "keys::fencing_tokens_grow_in_the_order_of_the_grants",
        &["before < guard.token()"],
    ),
    (
        Flaw::AnswerOfAnother,
        "hand_over::tries_beside_a_release_answer_busy_or_hold",
        TWO,
    ),
];

/// The other flaws, and the tests of the suite `flaws` that find them. `tests/README.md` says why no schedule does.
const FOUND_ELSEWHERE: &[(Flaw, &str)] = &[
    (
        Flaw::DeltaInsteadOfCount,
        "attempt_sent_twice_is_freed_by_one_release",
    ),
    (
        Flaw::PermitsGivenAgain,
        "permit_whose_release_is_sent_twice_is_one_permit",
    ),
    (
        Flaw::EndForgotten,
        "attempt_that_comes_after_the_release_takes_no_permit",
    ),
    (
        Flaw::ReleaseNotRepeated,
        "hold_that_comes_back_after_its_release_is_ended",
    ),
    (
        Flaw::DoubtEndsWithLease,
        "attempt_that_a_hung_server_carries_out_is_ended",
    ),
    (
        Flaw::HoldersUnseen,
        "hold_outlives_each_server_that_forgets_it_in_turn",
    ),
    (
        Flaw::SeveralKeysByTries,
        "waiter_for_two_hot_keys_gets_both",
    ),
    (
        Flaw::BatchCutInTheMiddle,
        "keys_acquired_at_once_are_all_taken",
    ),
    (Flaw::ExtensionForgotten, "extended_lease_keeps_others_out"),
    (Flaw::AttachedAgain, "detached_hold_is_attached_once"),
    (
        Flaw::MarginForgotten,
        "hold_ends_before_its_lease_by_the_margin",
    ),
    (Flaw::LossUntold, "redis_flaw_LossUntold_is_caught_by_A19"),
];

/// The flaw that the environment names.
fn chosen() -> Option<Flaw> {
    let name = env::var("FLAW").ok()?;
    let named = |flaw: &Flaw| format!("{flaw:?}") == name;
    Some(
        Flaw::ALL
            .into_iter()
            .find(named)
            .expect("a flaw of this name"),
    )
}

pub(super) fn with_flaw(builder: Builder) -> Builder {
    let Some(flaw) = chosen() else {
        return builder;
    };
    builder.decorate_backend(false, move |inner, clock, _| {
        Arc::new(Flawed::new(inner, clock.clone(), flaw))
    })
}

pub(super) fn around_waiter(
    waiter: impl Future<Output = Result<Guard, Error>> + Send + 'static,
) -> Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>> {
    Flaw::around_waiter(chosen(), waiter)
}

/// Schedules within which a scenario finds a flaw that a few percent of them show.
const SCHEDULES: &str = "5000";

#[test]
fn each_flaw_is_found_by_its_scenario() {
    // The processes would find it as well.
    if chosen().is_some() {
        return;
    }
    let program = env::current_exe().unwrap();
    for (flaw, scenario, how) in FOUND {
        let played = Command::new(&program)
            .args([&format!("test_util::interleavings::{scenario}"), "--exact"])
            .env("FLAW", format!("{flaw:?}"))
            .env("SCHEDULES", SCHEDULES)
            .output()
            .unwrap();
        let said = [played.stdout, played.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        // What a schedule shows first differs.
        let known = [LOST, TWO, NEVER, NUMBER];
        let has_found = how
            .iter()
            .chain(known.into_iter().flatten())
            .any(|text| said.contains(text));
        assert!(
            !played.status.success() && has_found,
            "{flaw:?} is not found by {scenario}, which should say {how:?}: {said}"
        );
        println!("{flaw:?}: found by {scenario}");
    }
}

#[test]
fn page_of_the_tests_says_what_finds_each_flaw() {
    const PAGE: &str = include_str!("../../../../tests/README.md");
    let name = |path: &'static str| path.rsplit("::").next().unwrap_or(path);
    let here = FOUND
        .iter()
        .map(|(flaw, scenario, _)| (*flaw, name(scenario)));
    let elsewhere = FOUND_ELSEWHERE.iter().copied();
    let found: Vec<(Flaw, &str)> = here.chain(elsewhere).collect();
    for flaw in Flaw::ALL {
        let by = found.iter().find(|(of, _)| *of == flaw);
        let (_, by) = by.unwrap_or_else(|| panic!("nothing finds {flaw:?}"));
        let row = format!("| `{flaw:?}` | `{by}` |");
        assert!(PAGE.contains(&row), "the page has no row {row}");
    }
}
