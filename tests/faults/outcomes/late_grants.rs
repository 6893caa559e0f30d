//! Row 88: grants that arrive late.

use std::time::Duration;

use distlock_tests::faults::{Fault, Op};
use distlock_tests::{Flow, Proxy, RedisServer, Select, Way};
use futures_util::future::join_all;
use rand::RngExt;

use crate::row::{Row, rows};
use crate::stage::Stage;
use crate::support::{default_client, free, ms, warm_up};

const KEY: &str = "order:42";

async fn f88_grants_that_arrive_late_in_memory_are_never_handed_out_near_their_end(row: &Row) {
    let stage = Stage::memory();
    let client = stage.faulty_client().await;
    let (lock, lease) = (client.lock(KEY), ms(45));
    for _ in 0..1_000 {
        let delay = lease * rand::rng().random_range(50..150) / 100;
        stage.faults().next(Op::Attempt, Fault::DelayReply(delay));
        let guard = lock.acquire().lease(lease).await.unwrap();
        let left = lock.remaining_lease().await.unwrap().unwrap();
        assert!(
            guard.is_held() && left >= lease / 3,
            "{left:?} after {delay:?}"
        );
        guard.release().await.unwrap();
    }
    stage.nothing_is_left().await;
    let faults = stage.faults();
    assert_eq!(faults.hits(Op::Attempt), 1_000);
    // One that was given back took another attempt.
    let late = faults.calls(Op::Attempt) - faults.hits(Op::Attempt);
    assert!(late < 1_000, "all were given back");
    row.injected("grant that came too late", late as u64);
}

async fn f88_grants_that_arrive_late_are_never_handed_out_when_their_lease_is_over(row: &Row) {
    const AT_ONCE: usize = 200;
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let client = default_client(&proxy.url()).await;
    warm_up(&client).await;
    // Its third is longer than a stutter of the machine between a grant and the look at it.
    let lease = ms(900);
    let (mut handed_out, mut given_back) = (0, 0);
    for tenths in [5, 6, 9, 11, 15] {
        let slow = Flow::Delay(lease * tenths / 10);
        let fault = proxy.flow(Select::ALL, Way::Down, slow);
        let tries = (0..AT_ONCE).map(|n| {
            let acquire = client.lock(format!("{tenths}:{n}")).acquire();
            async {
                let guard = acquire.wait(Duration::ZERO).lease(lease).await.ok()?;
                assert!(guard.is_held(), "expired when it was handed out");
                Some(guard)
            }
        });
        let guards = join_all(tries).await;
        let held = guards.iter().flatten().count();
        (handed_out, given_back) = (handed_out + held, given_back + AT_ONCE - held);
        row.injected("reply delayed", fault.hits());
        fault.lift();
    }
    assert!(
        handed_out > 0 && given_back >= 3 * AT_ONCE,
        "{handed_out} handed out"
    );
    free(&server, &[&client]).await;
}

rows! {
    Paused: f88_grants_that_arrive_late_in_memory_are_never_handed_out_near_their_end;
    Real: f88_grants_that_arrive_late_are_never_handed_out_when_their_lease_is_over;
}
