//! A busy lock is shared between Rust and Java processes.

use std::sync::Arc;

use distlock_interop::{Call, Kind, Peer};
use futures_util::future::join_all;

use crate::case::{Case, Play, cases};
use crate::stage::Stage;
use crate::statistics::note;
use crate::table::Row;

/// For how long they compete, in milliseconds.
const TIME: u64 = 2_500;

/// The least part of its fair share that a process of Rust may have, and Java's processes together, in percent: Redisson has
/// no turns between its processes. Rust's had 5 % where they left the key to Redisson for a fixed time, and without turns the
/// slower side has 6 %.
const LEAST: u64 = 15;

/// The fewest grants that tell something.
const ENOUGH: u64 = 60;

/// In nanoseconds. A thread waits for its turn, and for the other threads of its process.
const LONGEST: u64 = 3_000_000_000;

#[derive(Clone, Copy, Default, serde::Deserialize)]
struct Hammered {
    grants: u64,
    longest: u64,
}

/// How many compete.
#[derive(Clone, Copy)]
struct Crowd {
    /// Processes of each side.
    processes: [usize; 2],
    /// Threads or tasks of each process.
    threads: usize,
}

/// Of each process: its grants, and the longest wait of its threads.
async fn hammer(stage: &Stage, peers: &[Arc<Peer>], threads: usize, hold: u64) -> Vec<Hammered> {
    let lock = stage.lock();
    let mut call = Call::new("hammer", lock.0, &lock.1);
    (call.hold, call.time) = (Some(hold), Some(TIME));
    let begin = |peer: &Arc<Peer>| {
        let thread = |thread| peer.actor(format!("{} {thread}", stage.name));
        let pending = (0..threads).map(|number| thread(number).call(call.clone()));
        pending.collect::<Vec<_>>()
    };
    let all: Vec<_> = peers.iter().map(begin).collect();
    let sum = async |pending: Vec<distlock_interop::Pending>| {
        let mut sum = Hammered::default();
        for pending in pending {
            let Hammered { grants, longest } = pending.value().await;
            sum.grants += grants;
            sum.longest = sum.longest.max(longest);
        }
        sum
    };
    join_all(all.into_iter().map(sum)).await
}

async fn compete(stage: Stage, crowd: Crowd, hold: u64) {
    let [rust, java] = crowd.processes;
    let [mut peers, of_java] = [
        stage.programs(stage.holder, rust).await,
        stage.programs(stage.waiter, java).await,
    ];
    peers.extend(of_java);
    let had = hammer(&stage, &peers, crowd.threads, hold).await;
    let all: u64 = had.iter().map(|had| had.grants).sum();
    let fair = all / had.len() as u64;
    let parts: Vec<u64> = had
        .iter()
        .map(|had| had.grants * 100 / fair.max(1))
        .collect();
    let longest = had.iter().map(|had| had.longest / 1_000_000);
    let longest: Vec<u64> = longest.collect();
    note(format!(
        "share with holds of {hold:2} ms, {rust} Rust and {java} Java processes of {} beside {:?}: {all} grants, \
         in percent of the fair share Rust {:?} and Java {:?}, longest waits {:?} and {:?} ms",
        crowd.threads,
        stage.waiter,
        &parts[..rust],
        &parts[rust..],
        &longest[..rust],
        &longest[rust..],
    ));
    assert!(all >= ENOUGH, "only {all} grants");
    let of_java = parts[rust..].iter().sum::<u64>() / java as u64;
    let judged = [&parts[..rust], &[of_java]].concat();
    assert!(judged.iter().all(|part| *part >= LEAST), "{parts:?}");
    assert!(
        had.iter().all(|had| had.longest < LONGEST),
        "waits of {longest:?} ms"
    );
}

/// A process of each side, with four threads.
async fn of_two(stage: Stage, hold: u64) {
    let crowd = Crowd {
        processes: [1, 1],
        threads: 4,
    };
    compete(stage, crowd, hold).await;
}

async fn holds_of_0_ms(stage: Stage) {
    of_two(stage, 0).await;
}

async fn holds_of_1_ms(stage: Stage) {
    of_two(stage, 1).await;
}

async fn holds_of_20_ms(stage: Stage) {
    of_two(stage, 20).await;
}

/// Processes of one thread.
async fn of_single_threads(stage: Stage, processes: [usize; 2]) {
    let crowd = Crowd {
        processes,
        threads: 1,
    };
    compete(stage, crowd, 1).await;
}

async fn one_and_one_process_of_one_thread(stage: Stage) {
    of_single_threads(stage, [1, 1]).await;
}

async fn one_and_two_processes_of_one_thread(stage: Stage) {
    of_single_threads(stage, [1, 2]).await;
}

async fn two_and_one_process_of_one_thread(stage: Stage) {
    of_single_threads(stage, [2, 1]).await;
}

async fn two_and_two_processes_of_one_thread(stage: Stage) {
    of_single_threads(stage, [2, 2]).await;
}

pub(super) fn cases() -> Vec<Case> {
    let cases = cases![Row::Share, Kind::Reentrant;
        holds_of_0_ms,
        holds_of_1_ms,
        holds_of_20_ms,
        one_and_one_process_of_one_thread,
        one_and_two_processes_of_one_thread,
        two_and_one_process_of_one_thread,
        two_and_two_processes_of_one_thread,
    ];
    let alone = cases
        .into_iter()
        .map(|case| case.symmetrical().play(Play::Alone));
    alone.collect()
}
