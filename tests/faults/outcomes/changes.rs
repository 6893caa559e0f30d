//! Row 67 for what only changes a number: dropped at any point, a change is made once or not at all.

use distlock::{Client, CountDownLatch, Error, ExpirableSemaphore, Semaphore};
use distlock_tests::faults::{Fault, Op};
use distlock_tests::{drop_after, eventually_eq};
use tokio::time::sleep;

use crate::outcomes::cancel::FREE;
use crate::row::{Row, rows};
use crate::stage::Stage;
use crate::support::{SOON, ms};

/// Something with a number.
enum Thing {
    Semaphore(Semaphore),
    Seats(ExpirableSemaphore),
    Latch(CountDownLatch),
}

/// What kind of it is made of a key.
type Make = fn(&Client, String) -> Thing;

const SEMAPHORE: Make = |client, key| Thing::Semaphore(client.semaphore(key));
const SEATS: Make = |client, key| Thing::Seats(client.expirable_semaphore(key));
const LATCH: Make = |client, key| Thing::Latch(client.count_down_latch(key));

#[derive(Clone, Copy, Debug)]
enum Change {
    /// Where there is none yet.
    TrySet(u32),
    Set(u32),
    Add(i32),
    GiveBack(u32),
    Drain,
    CountDown,
    Delete,
}

/// What, from which number, by which change, to which.
const CHANGES: &[(Make, u32, Change, i64)] = &[
    (SEMAPHORE, 0, Change::TrySet(5), 5),
    (SEMAPHORE, 5, Change::Add(3), 8),
    (SEMAPHORE, 5, Change::Add(-7), -2),
    (SEMAPHORE, 5, Change::GiveBack(2), 7),
    (SEMAPHORE, 5, Change::Drain, 0),
    (SEMAPHORE, 5, Change::Delete, 0),
    (SEATS, 0, Change::TrySet(5), 5),
    (SEATS, 5, Change::Set(9), 9),
    (SEATS, 5, Change::Add(3), 8),
    (SEATS, 5, Change::Delete, 0),
    (LATCH, 0, Change::TrySet(5), 5),
    (LATCH, 5, Change::CountDown, 4),
    (LATCH, 1, Change::CountDown, 0),
    (LATCH, 5, Change::Delete, 0),
];

impl Thing {
    async fn make(&self, change: Change) -> Result<(), Error> {
        match (self, change) {
            (Self::Semaphore(pool), Change::TrySet(to)) => pool.try_set_permits(to).await.map(drop),
            (Self::Semaphore(pool), Change::Add(by)) => pool.add_permits(by).await.map(drop),
            (Self::Semaphore(pool), Change::GiveBack(by)) => {
                pool.release_permits(by).await.map(drop)
            }
            (Self::Semaphore(pool), Change::Drain) => pool.drain_permits().await.map(drop),
            (Self::Semaphore(pool), Change::Delete) => pool.delete().await.map(drop),
            (Self::Seats(seats), Change::TrySet(to)) => seats.try_set_permits(to).await.map(drop),
            (Self::Seats(seats), Change::Set(to)) => seats.set_permits(to).await,
            (Self::Seats(seats), Change::Add(by)) => seats.add_permits(by).await,
            (Self::Seats(seats), Change::Delete) => seats.delete().await.map(drop),
            (Self::Latch(latch), Change::TrySet(to)) => latch.try_set_count(to).await.map(drop),
            (Self::Latch(latch), Change::CountDown) => latch.count_down().await.map(drop),
            (Self::Latch(latch), Change::Delete) => latch.delete().await.map(drop),
            (_, change) => panic!("no {change:?} of this"),
        }
    }

    async fn number(&self) -> i64 {
        match self {
            Self::Semaphore(pool) => pool.available_permits().await.unwrap(),
            Self::Seats(seats) => seats.available_permits().await.unwrap(),
            Self::Latch(latch) => latch.count().await.unwrap().try_into().unwrap(),
        }
    }
}

async fn changes(stage: &Stage, row: &Row) {
    let (client, looks) = (stage.faulty_client().await, stage.client().await);
    let (slow, mut keys) = (ms(10), 0..);
    for (thing, from, change, to) in CHANGES {
        for fault in [
            Fault::Delay(slow),
            Fault::DelayReply(slow),
            Fault::FailBefore,
            Fault::FailAfter,
            Fault::Double,
            Fault::Late(slow),
        ] {
            for polls in 0.. {
                let key = format!("k:{}", keys.next().unwrap());
                let seen = thing(&looks, key.clone());
                if *from > 0 {
                    seen.make(Change::TrySet(*from)).await.unwrap();
                }
                stage.faults().next(Op::Adjust, fault);
                let making = thing(&client, key);
                let done = drop_after(polls, making.make(*change)).await;
                stage.heal();
                // Whatever is on its way is there.
                sleep(2 * slow).await;
                let number = seen.number().await;
                match &done {
                    Some(made) => assert!(made.is_ok() && number == *to, "{change:?}: {number}"),
                    None => assert!(
                        [i64::from(*from), *to].contains(&number),
                        "{change:?} of {from}: {number}"
                    ),
                }
                seen.make(Change::Delete).await.unwrap();
                if done.is_some() {
                    break;
                }
                row.injected("change dropped", 1);
            }
        }
    }
    stage.idle_within(FREE).await;
}

/// Ends a permit, and changes its lease, by its id.
async fn permits_by_id(stage: &Stage, row: &Row) {
    let (client, looks) = (stage.faulty_client().await, stage.client().await);
    let seats = looks.expirable_semaphore("seats");
    assert!(seats.try_set_permits(2).await.unwrap());
    let (slow, lease) = (ms(10), 10 * SOON);
    let ours = client.expirable_semaphore("seats");
    for fault in [
        Fault::Delay(slow),
        Fault::DelayReply(slow),
        Fault::FailBefore,
        Fault::FailAfter,
    ] {
        for polls in 0.. {
            let id = seats.acquire().await.unwrap().into_id().unwrap();
            stage.faults().next(Op::Adjust, fault);
            let updated = drop_after(polls, ours.update_lease(id, lease)).await;
            stage.heal();
            let left = seats.remaining_lease(id).await.unwrap().unwrap();
            assert!(left <= 3 * SOON && updated.is_none() || left > lease - SOON);
            stage.faults().next(Op::Adjust, fault);
            let released = drop_after(polls, ours.release(id)).await;
            stage.heal();
            let number = seats.available_permits().await.unwrap();
            assert!(number == 2 || (number == 1 && released.is_none()));
            let done = updated.is_some() && released.is_some();
            for made in [updated, released].into_iter().flatten() {
                made.unwrap();
            }
            if number == 1 {
                // Unless what was dropped comes meanwhile.
                let _released = seats.release(id).await;
            }
            row.injected("change dropped", u64::from(!done));
            if done {
                break;
            }
        }
    }
    let all = || async { seats.available_permits().await.unwrap() };
    eventually_eq(FREE, "free seats", 2, all).await;
    stage.idle_within(FREE).await;
}

rows! {
    Both:
        changes =>
            f67_change_dropped_in_memory_at_any_point_is_made_once_or_not,
            f67_change_dropped_at_any_point_is_made_once_or_not,
        permits_by_id =>
            f67_change_by_id_dropped_in_memory_at_any_point_is_made_once_or_not,
            f67_change_by_id_dropped_at_any_point_is_made_once_or_not;
}
