//! What is counted: each case does the same work by the library and by bare commands.
//!
//! A case does rounds of few and of many operations. The difference between the two, divided by the number of operations by
//! which they differ, is the cost of one operation. What a round does once drops out.

mod hand_over;
mod layer;
mod many_keys;
mod memory;
mod pair;
mod renewal;
mod several;
mod together;

use distlock::Lock;

use crate::parts::Parts;

/// Acquires and releases a lock this many times.
async fn pairs_of(lock: &Lock, pairs: usize) {
    for _ in 0..pairs {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
}

/// A case, by the name under which its ratio is stored.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What the ratio compares.
    pub(crate) what: &'static str,
    /// Whether the ratio has to be the stored one.
    pub(crate) is_gated: bool,
}

pub(crate) const CASES: [Case; 8] = [
    Case {
        name: "pair",
        what: "one task, acquire and release, to the bare pair",
        is_gated: true,
    },
    Case {
        name: "hand_over",
        what: "one hot key, a hand-over between tasks, to the bare pair",
        is_gated: true,
    },
    Case {
        name: "together",
        what: "128 keys acquired at once and released at once, to the bare pair",
        is_gated: true,
    },
    Case {
        name: "several",
        what: "one task, three keys acquired and released together, to the bare pair of three keys",
        is_gated: true,
    },
    Case {
        name: "memory",
        what: "one task, acquire and release in memory, to a map of mutexes",
        is_gated: true,
    },
    Case {
        name: "renewal",
        what: "the watchdog renews a hold, to a bare pipeline",
        // The watchdog works by the clock. On a busy machine the counts of ten runs were up to 10 % apart, and in one of them
        // no renewals came together in whole batches.
        is_gated: false,
    },
    Case {
        name: "many_keys",
        what: "64 tasks on 64 keys, to bare pairs of 64 tasks",
        // How many replies arrive together depends on the machine, and they share the instructions that read them.
        is_gated: false,
    },
    Case {
        name: "layer",
        what: "a request under the layer, in memory, to the bare route",
        // Most of it is the cost of axum, which changes with its versions.
        is_gated: false,
    },
];

/// Does the work of a case, on one thread.
pub(crate) fn run(case: &str, url: &str) -> Parts {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut parts = Parts::default();
    runtime.block_on(async {
        match case {
            "pair" => pair::run(url, &mut parts).await,
            "hand_over" => hand_over::run(url, &mut parts).await,
            "together" => together::run(url, &mut parts).await,
            "several" => several::run(url, &mut parts).await,
            "layer" => layer::run(&mut parts).await,
            "memory" => memory::run(&mut parts).await,
            "renewal" => renewal::run(url, &mut parts).await,
            "many_keys" => many_keys::run(url, &mut parts).await,
            _ => panic!("no case {case}"),
        }
    });
    parts
}
