//! A process that campaigns for a lead until SIGTERM: `candidate URL WATCHDOG_MS KEY`.
//!
//! | it writes | when |
//! | --- | --- |
//! | `leads TERM NS` | its body begins |
//! | `ended TERM NS` | its body is dropped |
//! | `late TERM NS` | its body runs although it leads no more, which must not happen |
//! | `resigned 0 NS` | it has resigned, and ends |
//!
//! `NS` is the machine's monotonic clock in nanoseconds, the same for all processes.

use std::time::Duration;

use distlock::{Client, Error};
use rustix::time::{ClockId, clock_gettime};
use tokio::signal::unix::{SignalKind, signal};

fn tell(what: &str, term: u64) {
    let time = clock_gettime(ClockId::Monotonic);
    let now = time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs();
    println!("{what} {term} {now}");
}

struct Term(u64);

impl Drop for Term {
    fn drop(&mut self) {
        tell("ended", self.0);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().expect("URL WATCHDOG_MS KEY");
    let (url, watchdog, key) = (next(), next(), next());
    let watchdog = Duration::from_millis(watchdog.parse().expect("milliseconds"));
    let mut end = signal(SignalKind::terminate()).expect("a signal that can be heard");
    let client = Client::builder()
        .watchdog_timeout(watchdog)
        .connect(&url)
        .await?;
    let leader = client.leader(key.clone());
    let campaign = leader.run(|term| {
        let key = key.clone();
        async move {
            tell("leads", term);
            let _term = Term(term);
            loop {
                tokio::time::sleep(Duration::from_millis(5)).await;
                // Before each poll the scope compares the clock. A process that stops right here is late without a mistake, so a
                // second look comes after another poll.
                if !distlock::is_held(&key) {
                    tokio::task::yield_now().await;
                    tell("late", term);
                }
            }
        }
    });
    let resign = async {
        end.recv().await;
        leader.resign().await;
    };
    let (ended, ()) = tokio::join!(campaign, resign);
    let ended: Option<()> = ended?;
    assert!(ended.is_none());
    tell("resigned", 0);
    client.close(Duration::from_secs(5)).await
}
