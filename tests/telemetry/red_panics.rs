//! A Redlock that is lost, or ends, while foreign code panics.

use std::time::Duration;

use distlock::test_util::ForeignPanic;
use distlock::{Client, MemoryServer, Quorum};
use distlock_tests::faults::{Fault, Faults, Op};
use distlock_tests::{Disturbed as _, eventually, eventually_eq};

use tokio::time::sleep;

use super::{MOST, SOON, play_all, turns};

const KEY: &str = "gone";

/// A guard ends, and the first `lost` of three servers have forgotten its hold. One call of foreign code on the way panics. The
/// snapshots show one loss if it was a majority, and the key is free on each server. Returns whether that call has come.
async fn end_with_a_panic(lost: usize, is_dropped: bool, succeeding: u32) -> bool {
    let servers = [(); 3].map(|()| MemoryServer::new());
    let client = |server| {
        let faults = Faults::new();
        // A release that is sent again takes nothing for a loss, because the first try may have ended the hold.
        faults.always(Op::Release, Fault::DelayReply(Duration::from_millis(1)));
        Client::builder().faults(&faults).in_memory(server).unwrap()
    };
    let clients = servers.each_ref().map(client);
    let lock = Quorum::new(clients.clone()).lock(KEY);
    let guard = lock.acquire().await.unwrap();
    turns(20).await;
    servers[..lost].iter().for_each(MemoryServer::forget_all);
    let panic = ForeignPanic::after(succeeding);
    let ending = tokio::spawn(async move {
        if is_dropped {
            drop(guard);
        } else {
            let _lost = guard.release().await;
        }
    });
    let _ended = ending.await;
    let what = format!("{lost} lost, dropped: {is_dropped}, a panic of call {succeeding}");
    let losses = || async {
        let of_each = clients.iter().map(|client| client.snapshot().losses.len());
        of_each.sum::<usize>()
    };
    let expected = usize::from(lost > 1);
    eventually_eq(SOON, format!("losses, {what}"), expected, losses).await;
    // What goes on in the background makes its calls as well.
    sleep(SOON).await;
    let has_come = panic.has_come();
    drop(panic);
    for server in &servers {
        let other = Client::builder().in_memory(server).unwrap().lock(KEY);
        let is_free = async || other.try_acquire().await.unwrap().is_some();
        eventually(SOON, format!("a free key, {what}"), is_free).await;
    }
    has_come
}

#[test]
fn red_lock_that_ends_or_is_lost_is_free_after_any_call_of_foreign_code_has_panicked() {
    for (lost, is_dropped) in [(0, true), (0, false), (1, true), (1, false), (2, true)] {
        let play = async |succeeding| end_with_a_panic(lost, is_dropped, succeeding).await;
        play_all(0..MOST, 2, play, true);
    }
}

/// The same for a multi-lock of which both keys are lost. Each of them is shown.
async fn multi_lock_with_a_panic(succeeding: u32) -> bool {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    faults.always(Op::Release, Fault::DelayReply(Duration::from_millis(1)));
    let client = Client::builder().faults(&faults).in_memory(&server);
    let client = client.unwrap();
    let guard = client.multi_lock(["one", "two"]).acquire().await.unwrap();
    turns(20).await;
    server.forget_all();
    let panic = ForeignPanic::after(succeeding);
    let ending = tokio::spawn(async move { guard.release().await });
    let _ended = ending.await;
    let losses = || async { client.snapshot().losses.len() };
    let what = format!("losses, a panic of call {succeeding}");
    eventually_eq(SOON, what, 2, losses).await;
    sleep(SOON).await;
    let has_come = panic.has_come();
    drop(panic);
    has_come
}

#[test]
fn losses_that_the_release_of_a_multi_lock_finds_are_shown_after_any_call_has_panicked() {
    play_all(0..MOST, 2, multi_lock_with_a_panic, true);
}
