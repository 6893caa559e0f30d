//! The rules, and where distlock has them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{
    batches, check, failover, hand_over, regain, releases, restart_grace, tokens, yielding,
};

/// For each rule: the model, the file and the function that have it, and the promise that breaks without it.
macro_rules! rules {
    ($($name:ident: $model:ident, $file:literal, $function:literal, $promise:ident;)*) => {
        /// A rule of distlock. Its name is that of the test that takes it out.
        #[expect(non_camel_case_types, reason = "each is the name of a test as well")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Rule {
            $($name,)*
        }

        /// The rules, each with a file below `distlock/src` and a function there.
        const PLACES: &[(Rule, &str, &str)] = &[$((Rule::$name, $file, $function),)*];

        mod without {
            use super::*;

            $(
                #[test]
                fn $name() {
                    check::breaks(Rule::$name, $model::model(Some(Rule::$name)), $model::$promise);
                }
            )*
        }
    };
}

rules! {
    // Leases and hand-overs.
    deadline_counts_from_before_the_sending: hand_over, "hold/lease.rs", "answered", NO_TWO_CLAIMS;
    hold_is_taken_back_only_before_its_release: hand_over, "hold/mod.rs", "take_back", NO_TWO_CLAIMS;
    hand_over_is_confirmed: hand_over, "hold/lease/verification.rs", "passed_on", FEW_BODIES;
    hand_over_needs_half_of_the_lease: hand_over, "hold/lease.rs", "may_pass_on", ENOUGH_LEASE;
    waiter_that_leaves_passes_the_hold_on: hand_over, "local/queue.rs", "leave", SOMEBODY_HAS_IT;

    // Attempts and releases.
    attempt_is_in_doubt_before_it_is_sent: releases, "wait/attempt/mod.rs", "begin", NOTHING_IS_LEFT;
    own_owner_is_granted_again: releases, "backend/redis/families/lock.rs", "attempt", NOT_ITS_OWN_REFUSAL;
    owner_is_not_used_again: releases, "session/owners.rs", "next", NO_TWO_CLAIMS;
    late_grant_is_released: releases, "wait/attempt/granted.rs", "granted", NOTHING_AFTER_THE_WAIT;
    release_names_its_owner: releases, "backend/redis/families/lock.rs", "release", NO_TWO_CLAIMS;
    release_is_sent_until_it_is_answered: releases, "session/release/tries.rs", "retry_until_confirmed", NOTHING_IS_LEFT;
    release_is_repeated_while_an_attempt_may_come: releases, "session/release/tries.rs", "was_answered", NOTHING_IS_LEFT;
    missing_hold_after_an_earlier_try_is_no_loss: releases, "session/release/confirm.rs", "settle", NO_FALSE_LOSS;

    // Attempts that travel together.
    attempt_of_a_dropped_caller_is_withdrawn: batches, "backend/redis/batch_sender.rs", "tell", NOTHING_IS_LEFT;

    // After a reconnect.
    releases_are_said_again: failover, "session/mod.rs", "reconnected", NOTHING_IS_LEFT;
    release_of_an_earlier_connection_is_said_again: failover, "session/release/remembered.rs", "add", NOTHING_IS_LEFT;
    answer_of_one_connection_forgets_no_releases_of_others: failover, "session/release/remembered.rs", "add", NOTHING_IS_LEFT;
    holds_that_are_gone_are_remembered: failover, "session/release/mod.rs", "clean_up", NOTHING_IS_LEFT;
    holds_are_asked_for_again: failover, "session/mod.rs", "doubt_of_other_connection", LOSSES_ARE_TOLD;
    connection_is_compared_once_the_hold_is_watched: failover, "session/mod.rs", "watch", LOSSES_ARE_TOLD;
    doubt_outlasts_an_earlier_question: failover, "hold/lease.rs", "due", LOSSES_ARE_TOLD;
    question_without_an_answer_stays_open: failover, "hold/lease.rs", "answered", LOSSES_ARE_TOLD;

    // The grace after a restart.
    grace_is_asked_for_again_after_the_grant: restart_grace, "backend/redis/mod.rs", "confirm", NO_TWO_CLAIMS;
    grace_counts_from_the_answer: restart_grace, "backend/redis/connection/link/opening.rs", "grants_from", NO_TWO_CLAIMS;
    uptime_is_counted_a_second_shorter: restart_grace, "backend/redis/connection/connect/info.rs", "uptime", NO_TWO_CLAIMS;
    grace_is_as_long_as_the_longest_lease: restart_grace, "client/builder/connections.rs", "restart_grace", NO_TWO_CLAIMS;

    // Turns of several clients.
    run_of_hand_overs_is_limited: yielding, "local/turns/run.rs", "goes_on", OTHERS_GET_A_TURN;
    run_ends_once_others_listen: yielding, "local/end.rs", "take_out", HEARD_IN_VAIN_ONCE;
    attempt_behind_a_release_counts_as_a_grant: yielding, "local/slot/step.rs", "may_follow", THERE_ARE_GAPS;
    others_go_first_after_a_release: yielding, "local/entry.rs", "yield_to", OTHERS_GET_A_TURN;
    release_is_remembered_for_who_comes_next: yielding, "local/turns/yield_list.rs", "take", OTHERS_GET_A_TURN;
    grants_of_others_are_counted: yielding, "local/turns/round_robin.rs", "others_granted", OURS_GET_A_TURN;
    who_listens_attempts_once_more: yielding, "wait/waiter.rs", "sleep", NOBODY_SLEEPS;

    // Fencing tokens.
    token_is_at_least_the_time: tokens, "backend/redis/families/lock.rs", "attempt", TOKENS_GROW;
    token_is_above_what_the_client_has_seen: tokens, "wait/attempt/mod.rs", "begin", OWN_TOKENS_GROW;

    // A Redlock that comes back to its servers.
    missing_servers_are_asked_again: regain, "wait/quorum/regain.rs", "try_missing", IT_COMES_BACK;
    fresh_part_counts_once_the_earlier_ones_are_found: regain, "wait/quorum/regain.rs", "is_confirmed", NOBODY_HAD_IT_BETWEEN;
    earlier_parts_are_looked_for_after_the_fresh_grant: regain, "wait/quorum/regain.rs", "keep_on", NOBODY_HAD_IT_BETWEEN;
    fresh_part_of_a_hold_that_ended_is_released: regain, "wait/quorum/guards.rs", "put", NOTHING_IS_LEFT;
}

/// How a comment in distlock names a rule of the model.
const MARK: &str = "// A rule of tests/model: ";

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../distlock/src")
}

/// The function with its body, as it stands in the file.
fn function<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let declared = format!("fn {name}");
    let lines = text.match_indices(&declared).map(|(at, _)| at);
    let mut starts = lines.filter(|at| {
        let next = text[at + declared.len()..].chars().next();
        matches!(next, Some('(' | '<'))
    });
    let start = starts.next()?;
    let line = text[..start].rfind('\n').map_or(0, |end| end + 1);
    let indent = &text[line..][..text[line..].len() - text[line..].trim_start().len()];
    let end = format!("\n{indent}}}\n");
    let length = text[line..].find(&end)?;
    Some(&text[line..line + length])
}

#[test]
fn each_function_names_the_rule_that_it_has() {
    for (rule, file, name) in PLACES {
        let text = fs::read_to_string(sources().join(file)).unwrap();
        let mut rest = text.as_str();
        let comment = format!("{MARK}{rule:?}.");
        // Several types of a file may have a function of that name.
        let mut is_named = false;
        while let Some(function) = function(rest, name) {
            is_named |= function.lines().any(|line| line.trim() == comment);
            let behind = function.as_ptr() as usize - rest.as_ptr() as usize + function.len();
            rest = &rest[behind..];
        }
        assert!(is_named, "the function {name} in {file} lacks: {comment}");
    }
}

#[test]
fn each_rule_that_the_code_names_is_in_the_model() {
    let mut named = 0;
    let mut folders = vec![sources()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for rule in text
                .lines()
                .filter_map(|line| line.trim().strip_prefix(MARK))
            {
                named += 1;
                let mut places = PLACES.iter();
                let is_there = places
                    .any(|(known, file, _)| rule == format!("{known:?}.") && path.ends_with(file));
                assert!(is_there, "{} names an unknown rule: {rule}", path.display());
            }
        }
    }
    assert_eq!(named, PLACES.len(), "each rule is named once");
}

#[test]
fn readme_names_each_rule() {
    let readme = include_str!("README.md");
    for (rule, file, name) in PLACES {
        let row = format!("| `{rule:?}` | `{name}` in `{file}` |");
        assert!(readme.contains(&row), "README.md lacks the row: {row}");
    }
}
