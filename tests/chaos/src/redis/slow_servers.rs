//! Servers that answer late although no fault was injected: the machine or its disk was slow.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock_tests::pulse::{Pulse, Stall, monotonic_nanos};
use distlock_tests::server::RedisServer;
use redis::Client;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::history::{Affected, Event, EventKind, Fault, History, Timestamp, Wiped};

/// The time between two questions, and between two tries to connect.
const EVERY: Duration = Duration::from_millis(20);

/// Asks servers again and again until it is dropped.
pub(super) struct SlowServers {
    _watches: JoinSet<()>,
    late: Late,
    answers: LateAnswers,
}

/// What counts as late, and what it means for a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    /// An answer that takes longer, without the stalls of this process.
    pub(super) after: Timestamp,
    /// How long it takes to heal.
    pub(super) heals: Timestamp,
}

/// The times between a question and its late answer.
type LateAnswers = Arc<Mutex<Vec<Stall>>>;

impl SlowServers {
    pub(super) fn watch<'a>(
        servers: impl IntoIterator<Item = &'a RedisServer>,
        late: Late,
    ) -> Self {
        let answers = LateAnswers::default();
        let clients = servers.into_iter().map(RedisServer::client);
        let watches = clients.map(|client| watch(client, Arc::clone(&answers), late));
        Self {
            _watches: watches.collect(),
            late,
            answers,
        }
    }

    /// Adds a fault to a history for each answer that was late beside no fault of the plan. One of the plan explains itself what comes
    /// of it, and more than one fault would excuse more.
    pub(super) fn add_to(&self, history: &History) {
        let planned: Vec<Fault> = history.events().into_iter().filter_map(outage).collect();
        let answers = self.answers.lock().expect("nobody panicked");
        for late in answers.iter() {
            let meets = |fault: &Fault| fault.from <= late.to && fault.to >= late.from;
            if !planned.iter().any(meets) {
                history.add(slow(*late, self.late.heals));
            }
        }
    }
}

/// A fault that kept all clients from a server.
fn outage(event: Event) -> Option<Fault> {
    match event.what {
        EventKind::Fault(fault) if fault.affected == Affected::Everybody => Some(fault),
        _ => None,
    }
}

/// Asks one server. A server that is gone may come back at the same address.
async fn watch(client: Client, answers: LateAnswers, late: Late) {
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
                    let owed = Stall {
                        from: asked,
                        to: answered,
                    };
                    answers.lock().expect("nobody panicked").push(owed);
                }
                sleep(EVERY).await;
            }
        }
        sleep(EVERY).await;
    }
}

fn slow(late: Stall, heals: Timestamp) -> Event {
    let fault = Fault {
        kind: String::from("SlowServer"),
        from: late.from,
        to: late.to,
        wiped: Wiped::Nothing,
        affected: Affected::Everybody,
        heals,
        hit: true,
        delays_attempts: false,
        reconnects: false,
    };
    Event {
        at: late.to,
        what: EventKind::Fault(fault),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::time::timestamp;

    const LATE: Duration = Duration::from_millis(200);

    /// Stops a server until the watch has seen it, and returns for how long it was stopped in all.
    async fn stop(server: &mut RedisServer, watch: &SlowServers) -> Stall {
        let known = || watch.answers.lock().unwrap().len();
        let (before, from) = (known(), monotonic_nanos());
        // A stop that finds the watch without a connection is not seen.
        for _ in 0..10 {
            server.stop();
            sleep(LATE * 3).await;
            server.cont();
            let told = async {
                while known() == before {
                    sleep(EVERY).await;
                }
            };
            if timeout(LATE * 20, told).await.is_ok() {
                let to = monotonic_nanos();
                return Stall { from, to };
            }
        }
        panic!("no stop was seen");
    }

    fn faults(watch: &SlowServers, planned: Option<Event>) -> Vec<Fault> {
        let history = History::default();
        planned.into_iter().for_each(|event| history.add(event));
        watch.add_to(&history);
        let faults = history.events().into_iter().filter_map(outage);
        faults.filter(|fault| fault.heals == 7).collect()
    }

    #[tokio::test]
    async fn server_that_stands_still_is_a_fault_of_that_length_unless_one_was_planned() {
        let mut server = RedisServer::start().await;
        let late = Late {
            after: timestamp(LATE),
            heals: 7,
        };
        let watch = SlowServers::watch([&server], late);
        let first = stop(&mut server, &watch).await;
        // It may be restarted.
        server.restart().await;
        server.connection().await;
        let second = stop(&mut server, &watch).await;
        // A busy machine may have kept the server from its answers at other times as well.
        let has = |faults: &[Fault], stop: &Stall| {
            let mut faults = faults
                .iter()
                .filter(|fault| fault.to - fault.from > timestamp(LATE));
            faults.any(|fault| fault.from < stop.to && fault.to > stop.from)
        };
        let both = faults(&watch, None);
        assert!(has(&both, &first) && has(&both, &second), "{both:?}");
        let planned = slow(second, 8);
        let unplanned = faults(&watch, Some(planned));
        assert!(
            has(&unplanned, &first) && !has(&unplanned, &second),
            "{unplanned:?}"
        );
    }
}
