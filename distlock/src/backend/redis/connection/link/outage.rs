//! What the log says about the connections to a server: once that an outage began, now and then that it lasts, and once
//! that it is over.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::stake::Stake;
use crate::backend::redis::connection::gauge::{ConnectedGauge, CountedAs};
use crate::config::ENDS_TOLD_AGAIN_AFTER;
use crate::sync::Mutex;
use crate::telemetry;

/// The time between two log lines about the same lasting failure.
pub(crate) const REPEATED_AFTER: Duration = Duration::from_secs(30);

/// The outages of one server, as seen by all connections of one client.
#[derive(Debug)]
pub(crate) struct OutageLog {
    /// The address, without user and password.
    server: String,
    gauge: Arc<ConnectedGauge>,
    stake: Arc<Stake>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether there was ever a connection.
    was_reached: bool,
    /// Whether failures are logged before there was a connection. Otherwise the caller of `connect` gets the error.
    tells_first: bool,
    outage: Option<ConnectionOutage>,
    /// The last end of a connection that was logged, and its cause.
    told_end: Option<(String, Instant)>,
    /// As what the gauge counts it.
    counted: Option<CountedAs>,
    /// Whether the client needs the server no more. A try to connect may be under way then.
    is_forgotten: bool,
}

#[derive(Debug)]
struct ConnectionOutage {
    since: Instant,
    logged: Instant,
    /// The connections that are lost and not back.
    lost: Vec<&'static str>,
}

impl OutageLog {
    /// The log of one server. `gauge` may show other servers as well. A connection that ends while nothing is at stake is no outage.
    pub(crate) fn new(server: String, gauge: Arc<ConnectedGauge>, stake: Arc<Stake>) -> Self {
        Self {
            server,
            gauge,
            stake,
            state: Mutex::default(),
        }
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// From now on failures are logged, also if there was no connection yet: nobody waits for the first one.
    pub(crate) fn tell_first(&self) {
        self.state.lock().tells_first = true;
    }

    /// A connection has ended. The end is no outage if nothing was at stake, or if the same end was logged a short while ago.
    /// It becomes one if a try to replace the connection fails.
    pub(crate) fn ended(&self, connection: &'static str, reason: &str) {
        // Before the mutex is locked: this asks the client, which locks others.
        let has_stake = self.stake.is_there();
        let is_told = self
            .state
            .lock()
            .tells_end(reason, has_stake, Instant::now());
        if is_told {
            self.failed(connection, &reason)
        } else {
            telemetry::connection_ended(&self.server, connection, reason)
        }
    }

    /// A connection was lost, or a try to replace it has failed.
    pub(crate) fn failed(&self, connection: &'static str, reason: &dyn Display) {
        let line = {
            let mut state = self.state.lock();
            let line = state.failed(connection, Instant::now());
            state.count_in(&self.gauge);
            line
        };
        // Outside of the mutex: a subscriber of the log may run any code.
        if line.is_some() {
            self.gauge.show();
        }
        match line {
            None => {}
            Some(Line::NotYet) => telemetry::not_connected_yet(&self.server, connection, reason),
            Some(Line::Began) => telemetry::outage_began(&self.server, connection, reason),
            Some(Line::Lasts(lasted)) => telemetry::outage_lasts(&self.server, lasted, reason),
        }
    }

    /// A connection is established. The outage is over when none is lost.
    pub(crate) fn established(&self, connection: &'static str) {
        let ended = {
            let mut state = self.state.lock();
            let ended = state.established(connection, Instant::now());
            state.count_in(&self.gauge);
            ended
        };
        if let Some(Ended { lasted, is_first }) = ended {
            if !is_first {
                telemetry::note_reconnected(&self.gauge.name);
            }
            telemetry::outage_over(&self.server, lasted, is_first);
        }
        self.gauge.show();
    }

    /// The client needs the server no more, so its outage is over.
    pub(crate) fn forget(&self) {
        let was_counted = {
            let mut state = self.state.lock();
            let was_counted = state.counted.is_some();
            state.forget();
            state.count_in(&self.gauge);
            was_counted
        };
        if was_counted {
            self.gauge.show();
        }
    }
}

impl Drop for OutageLog {
    fn drop(&mut self) {
        // It is not shown here, since a mutex may be locked. The task that tries to connect shows it.
        let mut state = self.state.lock();
        state.forget();
        state.count_in(&self.gauge);
    }
}

/// What the log says of a failure.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// There was no connection yet.
    NotYet,
    Began,
    Lasts(Duration),
}

/// An outage that is over.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    lasted: Duration,
    /// Whether there was no connection before it.
    is_first: bool,
}

impl State {
    /// Whether the end of a connection is logged as the beginning of an outage.
    fn tells_end(&mut self, reason: &str, has_stake: bool, now: Instant) -> bool {
        if self.outage.is_some() {
            return true;
        }
        let is_recent = self.told_end.as_ref().is_some_and(|(told, at)| {
            told == reason && now.duration_since(*at) < ENDS_TOLD_AGAIN_AFTER
        });
        let is_told = has_stake && !is_recent;
        if is_told {
            self.told_end = Some((reason.to_owned(), now));
        }
        is_told
    }

    /// What the log says of this failure, if it says anything.
    fn failed(&mut self, connection: &'static str, now: Instant) -> Option<Line> {
        // A try that was under way when the server was forgotten still ends here.
        if self.is_forgotten || !self.was_reached && !self.tells_first {
            return None;
        }
        let is_new = self.outage.is_none();
        let outage = self.outage.get_or_insert_with(|| ConnectionOutage {
            since: now,
            logged: now,
            lost: Vec::new(),
        });
        // Each failed try comes here, and the list must not grow for as long as the outage lasts.
        if !outage.lost.contains(&connection) {
            outage.lost.push(connection);
        }
        if is_new {
            return Some(if self.was_reached {
                Line::Began
            } else {
                Line::NotYet
            });
        }
        if now.duration_since(outage.logged) < REPEATED_AFTER {
            return None;
        }
        outage.logged = now;
        Some(Line::Lasts(now.duration_since(outage.since)))
    }

    fn count_in(&mut self, gauge: &ConnectedGauge) {
        let now = if self.outage.is_some() {
            Some(CountedAs::Out)
        } else if self.was_reached && !self.is_forgotten {
            Some(CountedAs::Up)
        } else {
            None
        };
        let before = std::mem::replace(&mut self.counted, now);
        if before == now {
            return;
        }
        let mut servers = gauge.servers.lock();
        if let Some(before) = before {
            *servers.number(before) -= 1;
        }
        if let Some(now) = now {
            *servers.number(now) += 1;
        }
    }

    /// Ends all outages of a server that is not needed any more.
    fn forget(&mut self) {
        self.is_forgotten = true;
        self.outage = None;
    }

    /// The outage that is over with this connection.
    fn established(&mut self, connection: &'static str, now: Instant) -> Option<Ended> {
        let is_first = !std::mem::replace(&mut self.was_reached, true);
        if let Some(outage) = &mut self.outage {
            outage.lost.retain(|lost| *lost != connection);
        }
        let ended = self.outage.take_if(|outage| outage.lost.is_empty())?;
        Some(Ended {
            lasted: now.duration_since(ended.since),
            is_first,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(server: &str, gauge: &Arc<ConnectedGauge>) -> OutageLog {
        OutageLog::new(server.to_owned(), Arc::clone(gauge), Arc::default())
    }

    const BOTH: [&str; 2] = ["commands", "messages"];

    #[test]
    fn lasting_outage_is_repeated_twice_a_minute_and_told_when_both_connections_are_back() {
        let start = Instant::now();
        let mut state = State::default();
        let at = |ms: u64| start + Duration::from_millis(ms);
        // Before there was a connection, the caller of `connect` gets the error.
        assert_eq!(state.failed(BOTH[0], at(0)), None);
        assert_eq!(state.established(BOTH[0], at(0)), None);
        // Both connections fail every 100 ms, for five minutes.
        let mut lines = Vec::new();
        for ms in (1_000..301_000).step_by(100) {
            lines.extend(BOTH.iter().filter_map(|one| state.failed(one, at(ms))));
        }
        let lasts = (1..10).map(|n| Line::Lasts(REPEATED_AFTER * n));
        let expected: Vec<Line> = std::iter::once(Line::Began).chain(lasts).collect();
        assert_eq!(lines, expected);
        assert_eq!(state.established(BOTH[0], at(301_000)), None);
        let lasted = state.established(BOTH[1], at(302_000));
        let lasted_ms =
            |ended: Option<Ended>| ended.map(|ended| (ended.lasted.as_millis(), ended.is_first));
        assert_eq!(lasted_ms(lasted), Some((301_000, false)));
        // The next one starts again.
        assert_eq!(state.failed(BOTH[0], at(302_100)), Some(Line::Began));
    }

    #[test]
    fn ends_are_told_if_something_is_at_stake_and_once_in_a_while_for_each_cause() {
        let start = Instant::now();
        let mut state = State::default();
        assert!(!state.tells_end("closed", false, start));
        assert!(state.tells_end("closed", true, start));
        assert!(!state.tells_end("closed", true, start));
        assert!(state.tells_end("reset", true, start));
        assert!(state.tells_end("closed", true, start));
        let later = start + ENDS_TOLD_AGAIN_AFTER;
        assert!(state.tells_end("closed", true, later));
        // A second connection is lost while the first one is: the same outage.
        state.was_reached = true;
        assert_eq!(state.failed(BOTH[0], later), Some(Line::Began));
        assert!(state.tells_end("closed", false, later));
    }

    #[test]
    fn gauge_counts_each_server_once_until_it_is_back_forgotten_or_dropped() {
        let gauge = ConnectedGauge::of_each("a:1, b:1".to_owned());
        let out = || gauge.servers.lock().out;
        let log = |server: &str| log_of(server, &gauge);
        let back = log("a:1");
        let forgotten = log("b:1");
        let dropped = log("c:1");
        for (at, one) in [&back, &forgotten, &dropped].into_iter().enumerate() {
            one.tell_first();
            for connection in BOTH {
                one.failed(connection, &"away");
            }
            assert_eq!(out(), at + 1);
        }
        back.established(BOTH[0]);
        assert_eq!(out(), 3);
        back.established(BOTH[1]);
        assert_eq!(out(), 2);
        forgotten.forget();
        forgotten.failed(BOTH[0], &"away");
        assert_eq!(out(), 1);
        drop(dropped);
        assert_eq!(out(), 0);
    }

    #[test]
    fn gauge_of_servers_of_which_one_is_enough_shows_an_outage_of_all_that_were_reached() {
        let gauge = ConnectedGauge::of_any("Sentinels of `locks`".to_owned());
        let log = |server: &str| log_of(server, &gauge);
        let is_connected = || gauge.is_connected(*gauge.servers.lock());
        let [one, two, unreached] = ["a:1", "b:1", "c:1"].map(log);
        one.established(BOTH[0]);
        two.established(BOTH[0]);
        unreached.failed(BOTH[0], &"away");
        one.failed(BOTH[0], &"away");
        assert!(is_connected());
        two.failed(BOTH[0], &"away");
        assert!(!is_connected());
        one.established(BOTH[0]);
        assert!(is_connected());
        one.forget();
        assert!(!is_connected());
        drop(two);
        assert!(is_connected(), "nothing is left that could be away");
    }

    #[test]
    fn outage_of_a_server_that_is_not_needed_any_more_is_over() {
        let start = Instant::now();
        let mut state = State {
            tells_first: true,
            ..State::default()
        };
        assert_eq!(state.failed(BOTH[0], start), Some(Line::NotYet));
        state.forget();
        // A try that was under way.
        assert_eq!(state.failed(BOTH[0], start), None);
        assert!(state.outage.is_none());
    }

    #[test]
    fn server_that_was_not_reached_yet_is_told_if_nobody_waits_for_the_first_connection() {
        let start = Instant::now();
        let mut state = State {
            tells_first: true,
            ..State::default()
        };
        assert_eq!(state.failed(BOTH[0], start), Some(Line::NotYet));
        assert_eq!(state.failed(BOTH[0], start), None);
        let lasted = Duration::from_millis(700);
        let is_first = true;
        let ended = state.established(BOTH[0], start + lasted);
        assert_eq!(ended, Some(Ended { lasted, is_first }));
        assert_eq!(state.failed(BOTH[0], start + lasted), Some(Line::Began));
    }
}
