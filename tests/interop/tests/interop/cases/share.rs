//! A busy lock is shared between a Rust and a Java process.

use distlock_interop::{Call, Kind};

use crate::case::{Case, Play};
use crate::stage::Stage;
use crate::statistics::note;
use crate::table::Row;

/// Threads in each of the two processes.
const THREADS: usize = 4;

/// For how long they compete, in milliseconds.
const TIME: u64 = 4_000;

/// The least share of either side, in percent. Without turns the slower side gets 3 %.
const LEAST: u64 = 15;

/// In nanoseconds. A thread waits for its turn, and for the other threads of its process.
const LONGEST: u64 = 3_000_000_000;

#[derive(serde::Deserialize)]
struct Hammered {
    grants: u64,
    longest: u64,
}

async fn compete(stage: Stage, hold: u64) {
    let lock = stage.lock();
    let mut call = Call::new("hammer", lock.0, &lock.1);
    (call.hold, call.time) = (Some(hold), Some(TIME));
    let mut pending = Vec::new();
    for thread in 0..THREADS {
        for actor in [
            stage.holder(&thread.to_string()).await,
            stage.waiter(&thread.to_string()).await,
        ] {
            pending.push(actor.call(call.clone()));
        }
    }
    let (mut grants, mut longest) = ([0, 0], [0, 0]);
    for (at, pending) in pending.into_iter().enumerate() {
        let hammered: Hammered = pending.value().await;
        grants[at % 2] += hammered.grants;
        longest[at % 2] = hammered.longest.max(longest[at % 2]);
    }
    let [rust, java] = grants;
    let percent = rust * 100 / (rust + java);
    let [of_rust, of_java] = longest.map(|longest| longest / 1_000_000);
    note(format!(
        "share with holds of {hold:2} ms beside {:?}: Rust {percent} % of {}, longest wait {of_rust} ms, of Java {of_java} ms",
        stage.waiter,
        rust + java,
    ));
    assert!(
        (LEAST..=100 - LEAST).contains(&percent),
        "Rust had {percent} %"
    );
    assert!(
        longest.into_iter().all(|wait| wait < LONGEST),
        "waits of {of_rust} and {of_java} ms"
    );
}

async fn holds_of_0_ms(stage: Stage) {
    compete(stage, 0).await;
}

async fn holds_of_1_ms(stage: Stage) {
    compete(stage, 1).await;
}

async fn holds_of_20_ms(stage: Stage) {
    compete(stage, 20).await;
}

pub(super) fn cases() -> Vec<Case> {
    let cases = crate::case::cases![Row::Share, Kind::Reentrant; holds_of_0_ms, holds_of_1_ms, holds_of_20_ms];
    let alone = cases
        .into_iter()
        .map(|case| case.symmetrical().play(Play::Alone));
    alone.collect()
}
