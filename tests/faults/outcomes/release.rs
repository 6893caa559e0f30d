//! Rows 85 and 86: ends of holds that meet others.

use distlock::{Client, Error, Guard, Loss};
use distlock_tests::log::lines_with;
use distlock_tests::{RedisServer, size};
use futures_util::future::join_all;
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use crate::row::{Row, rows};
use crate::support::{SOON, client_with, default_client, free, ms, waiting as waiting_in_line};

const KEY: &str = "order:42";

/// The loss that an end of a hold came back with.
fn loss(ended: Result<(), Error>) -> Option<Loss> {
    match ended {
        Err(Error::Lost { reason, .. }) => Some(reason),
        Err(other) => panic!("{other}"),
        Ok(()) => None,
    }
}

/// The server has this hold of the key, and no other.
async fn stands(server: &RedisServer, guard: &Guard) {
    let held = server.hgetall(guard.key()).await;
    let owner = guard.owner().to_string();
    assert_eq!(held.keys().collect::<Vec<_>>(), [&owner], "{guard:?}");
    assert!(guard.is_held());
}

/// Locks another key again and again, until it is aborted.
async fn hammer(client: Client) {
    loop {
        client
            .lock("load")
            .acquire()
            .run(yield_now())
            .await
            .unwrap();
    }
}

/// Takes the key away from its holder and holds it. The old holder learns of it, by a renewal or by its release, and does
/// nothing to the new hold.
async fn forced(server: &RedisServer, old: Guard, other: &Client, told: bool) {
    let lock = other.lock(old.key());
    assert!(lock.force_release().await.unwrap(), "it was held");
    let new = lock.acquire().wait(SOON).await.unwrap();
    if told {
        old.lost().await;
    }
    // By a renewal or its own release, and not by the clock at the end of the lease.
    assert_eq!(loss(old.release().await), Some(Loss::Gone));
    stands(server, &new).await;
    new.release().await.unwrap();
}

async fn f85_force_release_under_load_is_told_and_the_next_owner_is_not_touched(row: &Row) {
    let holds = size(500, 1_000);
    const AT_ONCE: usize = 500;
    let server = RedisServer::start().await;
    let lease = ms(6_000);
    let us = client_with(&server.url(), |builder| builder.watchdog_timeout(lease)).await;
    let other = default_client(&server.url()).await;
    let mut load = JoinSet::new();
    (0..4).for_each(|_| drop(load.spawn(hammer(us.clone()))));
    for wave in 0..holds / AT_ONCE {
        let lock = |n| us.lock(format!("{wave}:{n}"));
        let acquiring = (0..AT_ONCE).map(|n| lock(n).acquire().into_future());
        let held = join_all(acquiring).await;
        let each = held.into_iter().enumerate();
        let forced = each.map(|(n, old)| forced(&server, old.unwrap(), &other, n % 2 == 0));
        let all = join_all(forced);
        let forced = timeout(SOON, all).await.expect("all are told").len();
        row.injected("force-release under a holder", forced as u64);
    }
    load.shutdown().await;
    free(&server, &[&us, &other]).await;
}

async fn f85_hold_that_is_handed_over_after_a_force_release_is_told_soon(row: &Row) {
    const KEY: &str = "handed:over:after:its:loss";
    let told = || lines_with(&["handed over before the loss was found", KEY]);
    // Of an earlier play of this row.
    let before = told();
    let server = RedisServer::start().await;
    // A third of it, after which a regular renewal would find the loss, is far longer than what is waited for.
    let lease = ms(90_000);
    let us = client_with(&server.url(), |builder| builder.watchdog_timeout(lease)).await;
    let other = default_client(&server.url()).await;
    let handed_over_late = async || {
        let first = us.lock(KEY).acquire().await.unwrap();
        let waiting = tokio::spawn(us.lock(KEY).acquire().into_future());
        waiting_in_line(&us, 1).await;
        assert!(other.lock(KEY).force_release().await.unwrap());
        let inside = other.lock(KEY).acquire().wait(SOON).await.unwrap();
        // Released in the server instead if the machine needs longer than a run of hand-overs for these steps.
        let handed_over = first.release().await.is_ok();
        if handed_over {
            let second = waiting.await.unwrap().unwrap();
            row.timeout(SOON, second.lost()).await.expect("told");
            assert_eq!(loss(second.release().await), Some(Loss::Gone));
        } else {
            waiting.abort();
        }
        inside.release().await.unwrap();
        handed_over
    };
    for n in 1.. {
        assert!(n <= 100, "never handed over");
        if handed_over_late().await {
            break;
        }
    }
    row.injected("force-release before a hand-over", 1);
    assert_eq!(told() - before, 1, "lines in the log");
    free(&server, &[&us, &other]).await;
}

/// The old owner ends when another has the key. Does that one keep it?
async fn ends_late(server: &RedisServer, old: Guard, new: &Guard, by_drop: bool, why: Loss) {
    if by_drop {
        drop(old);
    } else {
        assert_eq!(loss(old.release().await), Some(why));
    }
    stands(server, new).await;
}

async fn f86_release_of_a_hold_that_another_has_by_now_is_lost_and_ends_nothing(row: &Row) {
    let holds = size(30, 100);
    let server = RedisServer::start().await;
    let (us, other) = (
        default_client(&server.url()).await,
        default_client(&server.url()).await,
    );
    for n in 0..holds {
        let (lock, theirs, by_drop) = (us.lock(KEY), other.lock(KEY), n % 2 == 0);
        // Taken away: the old owner does not know of it, and its release is the first to ask the server.
        let old = lock.acquire().await.unwrap();
        server.cli(&["DEL", KEY]).await;
        let new = theirs.try_acquire().await.unwrap().unwrap();
        assert!(old.is_held());
        ends_late(&server, old, &new, by_drop, Loss::Gone).await;
        new.release().await.unwrap();
        // Expired.
        let old = lock.acquire().lease(ms(20)).await.unwrap();
        let new = theirs.acquire().wait(SOON).await.unwrap();
        ends_late(&server, old, &new, by_drop, Loss::Expired).await;
        stands(&server, &new).await;
        new.release().await.unwrap();
        row.injected("hold that another had by its end", 2);
    }
    free(&server, &[&us, &other]).await;
}

rows! {
    Real: f85_force_release_under_load_is_told_and_the_next_owner_is_not_touched,
        f85_hold_that_is_handed_over_after_a_force_release_is_told_soon,
        f86_release_of_a_hold_that_another_has_by_now_is_lost_and_ends_nothing;
}
