//! How clusters and Sentinel sets end: with their test, and never before. `pids` lists the processes of one.

use std::fmt::Debug;

use distlock_tests::{Process, eventually};
use tokio::sync::oneshot;

use super::server::exists;
use super::{SOON, panic_text};

pub(super) fn is_gone_when_dropped<T>(servers: T, pids: fn(&T) -> Vec<u32>) {
    let pids = pids(&servers);
    assert!(pids.iter().all(|pid| exists(*pid)));
    drop(servers);
    assert!(!pids.iter().any(|pid| exists(*pid)));
}

pub(super) async fn is_gone_after_a_panic<T: Send + 'static>(
    start: impl Future<Output = T> + Send + 'static,
    pids: fn(&T) -> Vec<u32>,
) {
    let (tell, told) = oneshot::channel();
    let test = tokio::spawn(async move {
        let servers = start.await;
        tell.send(pids(&servers)).unwrap();
        panic!("the test fails");
    });
    let pids = told.await.unwrap();
    assert_eq!(panic_text(test.await.unwrap_err()), "the test fails");
    assert!(!pids.iter().any(|pid| exists(*pid)));
}

/// `servers` is what the process shares with its tests, of so many processes.
pub(super) async fn dies_with_a_killed_test_process(servers: &str, processes: usize) {
    let mut orphan = Process::start(env!("CARGO_BIN_EXE_orphan_process"), [servers]);
    let told = orphan.json(SOON * 6).await;
    let pids: Vec<u32> = serde_json::from_value(told).unwrap();
    assert_eq!(pids.len(), processes);
    assert!(pids.iter().all(|pid| exists(*pid)));
    orphan.kill();
    eventually(SOON, "its processes to die", || async {
        !pids.iter().any(|pid| exists(*pid))
    })
    .await;
}

/// `what` names the processes and one of their addresses.
pub(super) fn outlives_the_runtime_that_started_it<T: PartialEq + Debug>(
    what: impl AsyncFn() -> T,
) {
    let of_a_runtime = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(what())
    };
    assert_eq!(of_a_runtime(), of_a_runtime());
}
