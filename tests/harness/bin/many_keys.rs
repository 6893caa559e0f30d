//! A process that locks many keys in memory, each once, and tells how much it has grown by that: alone in its process,
//! as no test is.
//!
//! `many_keys KEYS` answers `grown BYTES kept KEYS` when it is done: what is resident more than after the first tenth,
//! and how many entries its client and server still have.

use std::time::Duration;

use distlock::test_util::{sizes, stored, tokens};
use distlock::{Client, Error, Guard, LockSource, MemoryServer, Mode};
use distlock_tests::leaks::resident;

/// Keys that are held at once.
const AT_ONCE: usize = 500;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let keys = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let keys: usize = keys.expect("how many keys");
    let server = MemoryServer::new();
    let client = Client::builder().in_memory(&server)?;
    lock_each(&client, 0..keys / 10).await?;
    let before = resident();
    lock_each(&client, keys / 10..keys).await?;
    client.close(Duration::from_secs(10)).await?;
    let (kept, stored) = (sizes(&client), stored(&server));
    let kept = kept.keys + kept.waiters + kept.holds + kept.pending_releases + stored.0 + stored.1;
    let kept = kept + tokens(&server).len();
    println!("grown {} kept {kept}", resident().saturating_sub(before));
    Ok(())
}

/// Holds each key once, as a reentrant or a fenced lock, and ends it in one of three ways.
async fn lock_each(client: &Client, keys: std::ops::Range<usize>) -> Result<(), Error> {
    let locks = LockSource::from(client);
    for from in keys.clone().step_by(AT_ONCE) {
        let mut guards: [Vec<Guard>; 3] = Default::default();
        for n in from..keys.end.min(from + AT_ONCE) {
            let mode = if n % 2 == 0 {
                Mode::Reentrant
            } else {
                Mode::Fenced
            };
            let acquire = locks.acquire(mode, [format!("order:{n}")]);
            guards[n % 3].push(match n % 3 {
                0 => acquire.lease(Duration::from_millis(1)).await?,
                _ => acquire.await?,
            });
        }
        let [expired, released, dropped] = guards;
        drop(dropped);
        for guard in released {
            guard.release().await?;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        drop(expired);
    }
    Ok(())
}
