//! Row 92: hand-overs while renewals and releases fail.

use std::sync::atomic::{AtomicUsize, Ordering};

use distlock::{Client, Owner};
use distlock_tests::faults::{Fault, Op};
use distlock_tests::size;
use futures_util::future::join_all;
use parking_lot::Mutex;
use rand::RngExt;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::row::{Row, rows};
use crate::stage::Stage;
use crate::support::{Inside, ms};

const KEY: &str = "order:42";

/// Waiters that hand the hold over to each other.
struct Relay<'a> {
    stage: &'a Stage,
    client: Client,
    inside: AtomicUsize,
    former: Mutex<Option<Owner>>,
    hand_overs: AtomicUsize,
}

impl Relay<'_> {
    /// The next renewal and the next release meet a fault, or pass.
    fn plan(&self) {
        let by = ms(rand::rng().random_range(0..60));
        for op in [Op::Renew, Op::Release] {
            let faults = [
                Fault::FailAfter,
                Fault::Delay(by),
                Fault::DelayReply(by),
                Fault::Late(by),
                Fault::FailBefore,
            ];
            self.stage.faults().clear(op);
            self.stage
                .faults()
                .next(op, faults[rand::rng().random_range(0..faults.len())]);
        }
    }

    /// One section. It was never told of a loss: it ends its hold itself.
    async fn section(&self) {
        let guard = self.client.lock(KEY).acquire().await.unwrap();
        let inside = Inside::enter(&self.inside);
        let former = self.former.lock().replace(guard.owner());
        let handed = former == Some(guard.owner());
        self.hand_overs
            .fetch_add(usize::from(handed), Ordering::SeqCst);
        self.plan();
        // A changed count is stated by a renewal, which may be answered in the next section or the one after.
        let way = rand::rng().random_range(0..8);
        let again = (way < 4).then(|| guard.reenter().expect("held"));
        for _ in 0..way {
            yield_now().await;
        }
        if way == 7 {
            sleep(ms(5)).await;
        }
        drop(again);
        assert!(guard.is_held(), "lost a hold that it did not end");
        drop(inside);
        match way % 2 {
            0 => drop(guard),
            _ => guard.release().await.expect("its own end"),
        }
    }
}

/// Local waiters hand a hold over to each other, while renewals and releases fail, come late and are slow.
async fn hand_overs(stage: &Stage, row: &Row, wanted: usize) {
    let relay = Relay {
        stage,
        client: stage.faulty_client().await,
        inside: AtomicUsize::new(0),
        former: Mutex::default(),
        hand_overs: AtomicUsize::new(0),
    };
    let runners = (0..8).map(|_| async {
        while relay.hand_overs.load(Ordering::SeqCst) < wanted {
            relay.section().await;
        }
    });
    join_all(runners).await;
    stage.heal();
    let faults = stage.faults();
    for (fault, hits) in [
        ("hand-over", relay.hand_overs.into_inner()),
        ("fault of a renewal", faults.hits(Op::Renew)),
        ("fault of a release", faults.hits(Op::Release)),
    ] {
        assert!(hits > 10, "{fault}: {hits}");
        row.injected(fault, hits as u64);
    }
    stage.nothing_is_left().await;
}

async fn f92_hand_overs_in_memory_with_failing_renewals_and_releases_lose_no_hold(row: &Row) {
    hand_overs(&Stage::memory(), row, size(3_000, 10_000)).await;
}

async fn f92_hand_overs_with_failing_renewals_and_releases_lose_no_hold(row: &Row) {
    // As many as in memory would take a quarter of a minute.
    hand_overs(&Stage::redis().await, row, size(800, 4_000)).await;
}

rows! {
    Paused: f92_hand_overs_in_memory_with_failing_renewals_and_releases_lose_no_hold;
    Real: f92_hand_overs_with_failing_renewals_and_releases_lose_no_hold;
}
