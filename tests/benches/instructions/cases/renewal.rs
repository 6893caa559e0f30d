//! The watchdog renews many holds.
//!
//! The watchdog works by the clock, and so a round is as long as the time between two renewals of a hold. A round counts if
//! the server was asked to renew each hold once, by full batches. Others are repeated.

use std::process::exit;
use std::time::Duration;

use distlock::{Client, Guard};
use futures_util::future::join_all;
use tokio::time::sleep;

use crate::bare::{Bare, Name};
use crate::callgrind::TOO_BUSY;
use crate::parts::{Parts, Side};

const ROUNDS: usize = 3;
const MOST_TRIES: usize = 12;
const HOLDS: [usize; 2] = [100, 400];
/// How many holds the library renews by one script.
const BATCH: usize = 100;
const LEASE: Duration = Duration::from_millis(4_500);
/// The time between two renewals of a hold.
const PERIOD: Duration = Duration::from_millis(1_500);
/// The pause between two looks at the server's count.
const LOOK: Duration = Duration::from_millis(50);

pub(super) async fn run(url: &str, parts: &mut Parts) {
    let client = Client::builder().watchdog_timeout(LEASE);
    let client = client.connect(url).await.unwrap();
    let mut bare = Bare::connect(url).await;
    let names: Vec<Name> = (0..HOLDS[1]).map(Name::new).collect();
    for name in &names {
        bare.acquire(name).await;
    }
    for _ in 0..ROUNDS {
        for holds in HOLDS {
            let theirs = bare.renew(&names[..holds], BATCH);
            parts.count(Side::Bare, holds, theirs).await;
        }
    }
    let mut guards: Vec<Guard> = Vec::new();
    for holds in HOLDS {
        let more = (guards.len()..holds).map(|number| client.lock(format!("ours:{number}")));
        let more = join_all(more.map(|lock| lock.acquire().into_future())).await;
        guards.extend(more.into_iter().map(Result::unwrap));
        // The watchdog also looks at what it planned a lease ago. Until then it does less, and the holds are renewed apart.
        sleep(LEASE + PERIOD).await;
        let (mut rounds, mut tries) = (0, 0);
        while rounds < ROUNDS {
            tries += 1;
            if tries > MOST_TRIES {
                eprintln!("renewals of {holds} holds are no whole batches");
                exit(TOO_BUSY);
            }
            await_renewal(&mut bare).await;
            rounds += count_renewals(holds, ROUNDS - rounds, &mut bare, parts).await;
        }
    }
}

/// Returns in the middle between two renewals.
async fn await_renewal(bare: &mut Bare) {
    let before = bare.renewed().await;
    while bare.renewed().await == before {
        sleep(LOOK).await;
    }
    sleep(PERIOD / 2).await;
}

/// Counts some rounds, until one of them does not count. Returns the number of those that do.
async fn count_renewals(holds: usize, rounds: usize, bare: &mut Bare, parts: &mut Parts) -> usize {
    for round in 0..rounds {
        let before = bare.renewed().await;
        parts.end();
        sleep(PERIOD).await;
        parts.end();
        let after = bare.renewed().await;
        if after != before.after(holds, holds.div_ceil(BATCH)) {
            return round;
        }
        parts.counts(Side::Library, holds);
    }
    rounds
}
