//! Plays with a panic of foreign code at each of its calls, and what must be so after each of them.

use std::time::Duration;

use distlock::test_util::{Sizes, sizes};
use distlock::{Client, Error};
use distlock_tests::{LockKind, eventually_eq};
use tokio::runtime::Builder;

/// Less than the watchdog's lease, so that a key which the lease has freed is not taken for one that was released.
pub(crate) const SOON: Duration = Duration::from_secs(12);

/// More calls than any play makes.
pub(crate) const MOST: u32 = 500;

/// Plays with a panic at the first of these calls, and so on, until a play ends without any. That one has more than `least` calls.
pub(crate) fn play_all<F: Future<Output = bool>>(
    calls: impl IntoIterator<Item = u32>,
    least: u32,
    play: impl Fn(u32) -> F,
    paused: bool,
) {
    for succeeding in calls {
        // Of its own for each play, so that none finds the tasks of another.
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(paused)
            .build()
            .unwrap();
        if !runtime.block_on(play(succeeding)) {
            assert!(succeeding > least, "only {succeeding} calls");
            return;
        }
    }
    panic!("each of {MOST} plays had a panic");
}

/// Whether all of the lock can be acquired by another client.
pub(crate) async fn is_free(other: &Client, kind: LockKind, key: &str) -> Result<(), Error> {
    let kind = match kind {
        LockKind::Read => LockKind::Write,
        kind => kind,
    };
    let mut guards = Vec::new();
    for _ in 0..kind.capacity() {
        let lock = kind.lock(other, key);
        guards.push(lock.acquire(Some(SOON), None).await?);
    }
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

/// The key is free for the other client, and the first one has nothing left.
pub(crate) async fn expect_nothing_is_left(
    [client, other]: [&Client; 2],
    kind: LockKind,
    key: &str,
    what: &str,
) {
    let freed = is_free(other, kind, key).await;
    assert!(freed.is_ok(), "{what}: {freed:?}");
    let left = || async {
        Sizes {
            channels: 0,
            ..sizes(client)
        }
    };
    eventually_eq(SOON, format!("what {what} left"), Sizes::default(), left).await;
}
