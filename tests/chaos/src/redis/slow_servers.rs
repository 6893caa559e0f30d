//! Servers that answer late although no fault was injected: the machine or its disk was slow.

use std::time::Duration;

use distlock_tests::pulse::{Pulse, monotonic_nanos};
use distlock_tests::server::RedisServer;
use redis::Client;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::history::{Affected, Event, EventKind, Fault, History, Timestamp, Wiped};

/// The time between two questions, and between two tries to connect.
const EVERY: Duration = Duration::from_millis(20);

/// Asks servers again and again until it is dropped, and adds a fault to the history for each answer that was late.
pub(super) struct SlowServers {
    _watches: JoinSet<()>,
}

/// What counts as late, and what it means for a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    /// An answer that takes longer, without the stalls of this process.
    pub(super) after: Timestamp,
    /// How long it takes to heal.
    pub(super) heals: Timestamp,
}

impl SlowServers {
    pub(super) fn watch<'a>(
        servers: impl IntoIterator<Item = &'a RedisServer>,
        history: &History,
        late: Late,
    ) -> Self {
        let clients = servers.into_iter().map(RedisServer::client);
        let watches = clients.map(|client| watch(client, history.clone(), late));
        Self {
            _watches: watches.collect(),
        }
    }
}

/// Asks one server. A server that is gone may come back at the same address.
async fn watch(client: Client, history: History, late: Late) {
    let pulse = Pulse::start();
    loop {
        if let Ok(mut connection) = RedisServer::connection_of(&client).await {
            loop {
                let asked = monotonic_nanos();
                let answer = redis::cmd("PING").query_async::<()>(&mut connection).await;
                if answer.is_err() {
                    break;
                }
                let answered = monotonic_nanos();
                let stalls = pulse.stalls();
                let stalls = stalls.between(asked, answered);
                let stalled: Timestamp = stalls.map(|stall| stall.to - stall.from).sum();
                if answered - asked > stalled + late.after {
                    history.add(slow(asked, answered, late.heals));
                }
                sleep(EVERY).await;
            }
        }
        sleep(EVERY).await;
    }
}

fn slow(from: Timestamp, to: Timestamp, heals: Timestamp) -> Event {
    let fault = Fault {
        kind: String::from("SlowServer"),
        from,
        to,
        wiped: Wiped::Nothing,
        affected: Affected::Everybody,
        heals,
        hit: true,
        delays_attempts: false,
        reconnects: false,
    };
    Event {
        at: to,
        what: EventKind::Fault(fault),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::time::timestamp;

    fn faults(history: &History) -> Vec<Fault> {
        let events = history.events().into_iter();
        let faults = events.filter_map(|event| match event.what {
            EventKind::Fault(fault) => Some(fault),
            _ => None,
        });
        faults.collect()
    }

    #[tokio::test]
    async fn server_that_stands_still_is_a_fault_of_that_length_and_may_be_restarted() {
        const LATE: Duration = Duration::from_millis(200);
        let mut server = RedisServer::start().await;
        let history = History::default();
        let late = Late {
            after: timestamp(LATE),
            heals: 7,
        };
        let _watch = SlowServers::watch([&server], &history, late);
        for restarts in [false, true] {
            if restarts {
                server.restart().await;
                server.connection().await;
            }
            let known = faults(&history).len();
            // A stop that finds the watch without a connection is not seen.
            for _ in 0..10 {
                server.stop();
                sleep(LATE * 3).await;
                server.cont();
                let told = async {
                    while faults(&history).len() == known {
                        sleep(EVERY).await;
                    }
                };
                if timeout(LATE * 20, told).await.is_ok() {
                    break;
                }
            }
            let new = faults(&history).into_iter().skip(known).next_back();
            let fault = new.expect("a stop is seen");
            assert!(fault.to - fault.from > timestamp(LATE), "{fault:?}");
            assert_eq!((fault.heals, fault.affected), (7, Affected::Everybody));
        }
    }
}
