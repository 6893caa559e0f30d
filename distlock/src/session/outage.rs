//! Whether the server answers one client, and whether its replicas confirm what it grants.
//!
//! Each waiter knows only what its own attempts met. What they met together is kept here, so that waiters that have not
//! asked yet can tell a server that does not answer from a key that is held.
//!
//! An answer to an attempt ends what went unanswered. A grant that replicas did not confirm is ended by a grant that stands
//! alone: refusals continue while no replica is there.

use std::sync::Arc;
use std::time::Duration;

use super::per_server::PerServer;
use crate::backend::{Backend, Fault};
use crate::clock::{Clock, Tick};
use crate::config::Config;
use crate::resource::key::Key;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The most keys of which the client knows that their grants were not confirmed. Of others, a refusal counts as what it looks
/// like: somebody has the key.
const MOST_UNCONFIRMED_KEYS: usize = 64;

/// The attempts in a row that brought nothing, for all keys of one client that live on a server.
#[derive(Debug, Default)]
struct UnansweredAttempts {
    /// An attempt was not answered, and the server has answered no command since.
    is_silent: AtomicBool,
    /// Whether there are any `attempts`. It changes under the mutex, and lets an answer skip the mutex, as nearly all do.
    is_failing: AtomicBool,
    attempts: Mutex<Failing>,
}

/// The attempts in a row that brought nothing.
#[derive(Debug, Default)]
struct Failing {
    unanswered: Option<Unanswered>,
    unconfirmed: Option<Unconfirmed>,
}

/// Grants in a row that were not confirmed.
#[derive(Debug)]
struct Unconfirmed {
    attempts: Unanswered,
    /// The keys that were granted, each once, the latest ones last.
    keys: Vec<Key>,
}

/// Attempts in a row that were not answered, or whose grants were not confirmed.
#[derive(Clone, Debug)]
pub(crate) struct Unanswered {
    /// When the first of them was sent.
    pub(crate) since: Tick,
    /// When the last of them was given up.
    latest: Tick,
    /// The last failure; `None` while all of them were given up because their waits had ended.
    failure: Option<Fault>,
}

impl Unanswered {
    /// The fault that the caller of an attempt gets.
    pub(crate) fn fault(&self) -> Fault {
        self.failure.clone().unwrap_or_else(Fault::no_answer)
    }

    /// One more attempt. It belongs to the `earlier` ones, unless more than `gap` passed between them.
    fn after(
        earlier: Option<Self>,
        sent: Tick,
        now: Tick,
        failure: Option<Fault>,
        gap: Duration,
    ) -> Self {
        let earlier = earlier.filter(|earlier| sent.since(earlier.latest) <= gap);
        let (since, before) = match earlier {
            // Attempts need not fail in the order in which they were sent.
            Some(earlier) => (earlier.since.min(sent), earlier.failure),
            None => (sent, None),
        };
        Self {
            since,
            latest: now,
            failure: failure.or(before),
        }
    }

    /// Both together, which are one outage.
    fn and(self, other: Self) -> Self {
        Self {
            since: self.since.min(other.since),
            latest: self.latest.max(other.latest),
            failure: self.failure.or(other.failure),
        }
    }

    fn is_current(&self, now: Tick, gap: Duration) -> bool {
        now.since(self.latest) <= gap
    }

    /// Whether this shows that the server does not answer, and not only that an answer takes longer than a short wait.
    fn is_conclusive(&self, now: Tick, patience: Duration) -> bool {
        self.failure.is_some() || now.since(self.since) >= patience
    }
}

impl UnansweredAttempts {
    /// Whether an attempt was not answered, and the server has answered no command since.
    fn is_silent(&self) -> bool {
        // Relaxed: a hint. What follows from it is read under the mutex.
        self.is_silent.load(Ordering::Relaxed)
    }

    /// The server answered an attempt.
    fn answered(&self) {
        self.end(|failing| failing.unanswered = None);
    }

    /// The server granted a key, and enough replicas have that if any are needed.
    fn granted(&self) {
        self.end(|failing| *failing = Failing::default());
    }

    /// The server answered another command. It is there, so attempts that were given up early show nothing. It may
    /// still refuse attempts.
    fn answered_other(&self) {
        self.end(|failing| {
            let failed = failing.unanswered.take();
            failing.unanswered = failed.filter(|attempts| attempts.failure.is_some());
        });
    }

    fn end(&self, end: impl FnOnce(&mut Failing)) {
        // Read first: nearly always nothing is to end, and a write would move the cache line between the cores.
        if self.is_silent() {
            self.is_silent.store(false, Ordering::Relaxed);
        }
        // Relaxed, here and below: a hint that keeps the usual case free of the mutex. All else is read under it.
        if self.is_failing.load(Ordering::Relaxed) {
            let mut attempts = self.attempts.lock();
            end(&mut attempts);
            let is_over = attempts.unanswered.is_none() && attempts.unconfirmed.is_none();
            // Under the mutex, so that the flag is that of the last change.
            self.is_failing.store(!is_over, Ordering::Relaxed);
        }
    }

    /// An attempt that was sent at `sent` failed or was given up at `now`. It belongs to those before it, unless more
    /// than `gap` passed between them.
    fn unanswered(&self, sent: Tick, now: Tick, failure: Option<Fault>, gap: Duration) {
        let mut attempts = self.attempts.lock();
        let earlier = attempts.unanswered.take();
        attempts.unanswered = Some(Unanswered::after(earlier, sent, now, failure, gap));
        // Relaxed: hints, as in `end`. The mutex that is locked here orders all else.
        self.is_silent.store(true, Ordering::Relaxed);
        self.is_failing.store(true, Ordering::Relaxed);
    }

    /// A grant of this key, to an attempt that was sent at `sent`, was not confirmed by `now`.
    fn unconfirmed(&self, key: &Key, sent: Tick, now: Tick, fault: Fault, gap: Duration) {
        let mut attempts = self.attempts.lock();
        let (earlier, mut keys) = match attempts.unconfirmed.take() {
            Some(earlier) if earlier.attempts.is_current(sent, gap) => {
                (Some(earlier.attempts), earlier.keys)
            }
            _ => (None, Vec::new()),
        };
        keys.retain(|known| known != key);
        if keys.len() >= MOST_UNCONFIRMED_KEYS {
            keys.remove(0);
        }
        keys.push(key.clone());
        attempts.unconfirmed = Some(Unconfirmed {
            attempts: Unanswered::after(earlier, sent, now, Some(fault), gap),
            keys,
        });
        // Relaxed, as in `unanswered`.
        self.is_failing.store(true, Ordering::Relaxed);
    }

    /// The attempts that brought nothing, if the last of them is not longer ago than `gap`.
    fn current(&self, now: Tick, gap: Duration) -> Option<Unanswered> {
        if !self.is_failing.load(Ordering::Relaxed) {
            return None;
        }
        let attempts = self.attempts.lock();
        let unconfirmed = attempts.unconfirmed.as_ref().map(|one| &one.attempts);
        let of_both = [attempts.unanswered.as_ref(), unconfirmed].into_iter();
        let current = of_both.flatten().filter(|one| one.is_current(now, gap));
        current.cloned().reduce(Unanswered::and)
    }

    /// Whether a grant of this key was not confirmed lately, and none on its server was since.
    fn was_unconfirmed(&self, key: &Key, now: Tick, gap: Duration) -> bool {
        if !self.is_failing.load(Ordering::Relaxed) {
            return false;
        }
        let attempts = self.attempts.lock();
        let current = attempts.unconfirmed.as_ref();
        current.is_some_and(|one| one.attempts.is_current(now, gap) && one.keys.contains(key))
    }
}

/// The outages of the servers of one client.
#[derive(Debug)]
pub(crate) struct Outages {
    attempts: PerServer<UnansweredAttempts>,
    backend: Arc<dyn Backend>,
    clock: Clock,
    /// Attempts that fail with more time between them are not one outage.
    gap: Duration,
    /// After this time without an answer the server counts as silent.
    patience: Duration,
}

impl Outages {
    pub(super) fn new(backend: &Arc<dyn Backend>, clock: &Clock, config: &Config) -> Self {
        Self {
            attempts: PerServer::default(),
            backend: Arc::clone(backend),
            clock: clock.clone(),
            gap: config.unavailable_after,
            patience: config.conclusive_silence(),
        }
    }

    /// Runs a function on the outage of the server that a key lives on.
    fn of<R>(&self, key: &Key, with: impl FnOnce(&UnansweredAttempts) -> R) -> R {
        self.attempts.with(self.backend.home(key).server, with)
    }

    /// Whether an attempt at a key was not answered, and its server has answered no command since.
    pub(crate) fn is_silent(&self, key: &Key) -> bool {
        self.of(key, UnansweredAttempts::is_silent)
    }

    /// The server of a key answered an attempt.
    pub(crate) fn answered(&self, key: &Key) {
        self.of(key, UnansweredAttempts::answered);
    }

    /// The server of a key granted it, and enough replicas have that if any are needed.
    pub(crate) fn granted(&self, key: &Key) {
        self.of(key, UnansweredAttempts::granted);
    }

    /// A grant of a key, to an attempt that was sent at `sent`, was not confirmed.
    pub(crate) fn unconfirmed(&self, key: &Key, sent: Tick, fault: Fault) {
        let now = self.clock.now();
        self.of(key, |outage| {
            outage.unconfirmed(key, sent, now, fault, self.gap);
        });
    }

    /// Whether a grant of this key was not confirmed lately, and none on its server was since. The key was free then, so who
    /// has it now was granted it in the outage.
    pub(crate) fn was_unconfirmed(&self, key: &Key) -> bool {
        let now = self.clock.now();
        self.of(key, |outage| outage.was_unconfirmed(key, now, self.gap))
    }

    /// The server of a key answered a command that is not an attempt.
    pub(super) fn answered_other(&self, key: &Key) {
        self.of(key, UnansweredAttempts::answered_other);
    }

    /// An attempt at a key that was sent at `sent` failed, or it was given up and has no `failure`.
    pub(crate) fn unanswered(&self, key: &Key, sent: Tick, failure: Option<Fault>) {
        let now = self.clock.now();
        self.of(key, |outage| {
            outage.unanswered(sent, now, failure, self.gap);
        });
    }

    /// The attempts of this client that the server of a key did not answer, if it has answered none since, and those whose
    /// grants were not confirmed, if none was since.
    pub(crate) fn current(&self, key: &Key) -> Option<Unanswered> {
        let now = self.clock.now();
        self.of(key, |outage| outage.current(now, self.gap))
    }

    /// The same, if it was so at `at` already.
    pub(crate) fn current_since(&self, key: &Key, at: Tick) -> Option<Unanswered> {
        let attempts = self.current(key);
        attempts.filter(|attempts| attempts.since <= at)
    }

    /// Whether attempts at a key fail because its server refuses the logins of new connections. That may pass, because a password may
    /// be about to change.
    pub(crate) fn is_login_refused(&self, key: &Key) -> bool {
        let attempts = self.current(key);
        attempts.is_some_and(|attempts| matches!(attempts.failure, Some(Fault::LoginDenied(_))))
    }

    /// Why no answer can be expected for a key, if this client knows that its server does not answer. A wait that ends
    /// then ends as unavailable, and not as a timeout.
    pub(crate) fn known(&self, key: &Key) -> Option<Fault> {
        let now = self.clock.now();
        let conclusive = |attempts: &Unanswered| attempts.is_conclusive(now, self.patience);
        let attempts = self.current(key).filter(conclusive);
        attempts
            .as_ref()
            .map(Unanswered::fault)
            .or_else(|| self.backend.disconnected(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cause;

    const GAP: Duration = Duration::from_secs(5);

    fn at(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    fn failure() -> Option<Fault> {
        Some(Fault::NotNow(cause("down")))
    }

    #[test]
    fn attempts_in_a_row_count_from_the_first_until_an_answer() {
        let outage = UnansweredAttempts::default();
        assert!(outage.current(at(0), GAP).is_none());
        outage.unanswered(at(100), at(2_000), failure(), GAP);
        outage.unanswered(at(2_020), at(4_000), None, GAP);
        let attempts = outage.current(at(4_000), GAP).unwrap();
        assert_eq!(attempts.since, at(100));
        assert_eq!(attempts.fault().to_string(), "not executed: down");
        outage.answered();
        assert!(!outage.is_silent() && outage.current(at(4_000), GAP).is_none());
    }

    #[test]
    fn attempts_that_are_far_apart_are_not_one_outage() {
        let outage = UnansweredAttempts::default();
        outage.unanswered(at(0), at(100), failure(), GAP);
        assert!(outage.current(at(6_000), GAP).is_none());
        outage.unanswered(at(6_000), at(6_100), None, GAP);
        let attempts = outage.current(at(6_100), GAP).unwrap();
        assert_eq!(attempts.since, at(6_000));
        assert!(attempts.failure.is_none());
    }

    #[test]
    fn answers_to_other_commands_end_only_what_was_given_up_early() {
        let outage = UnansweredAttempts::default();
        outage.unanswered(at(0), at(3), None, GAP);
        outage.answered_other();
        assert!(!outage.is_silent() && outage.current(at(3), GAP).is_none());
        outage.unanswered(at(4), at(5), failure(), GAP);
        outage.answered_other();
        assert!(!outage.is_silent() && outage.current(at(5), GAP).is_some());
    }

    #[test]
    fn grants_that_are_not_confirmed_count_until_one_stands_and_a_refusal_ends_them_not() {
        let outage = UnansweredAttempts::default();
        let key = |name: &str| Key::new("", name).unwrap();
        let fault = || Fault::Unknown(cause("0 of 1 replicas"));
        outage.unconfirmed(&key("a"), at(0), at(500), fault(), GAP);
        assert!(!outage.is_silent(), "it has answered");
        outage.answered();
        outage.unconfirmed(&key("b"), at(600), at(1_000), fault(), GAP);
        let attempts = outage.current(at(1_000), GAP).unwrap();
        assert_eq!(attempts.since, at(0));
        let was = |name, ms| outage.was_unconfirmed(&key(name), at(ms), GAP);
        assert!(was("a", 1_000) && was("b", 1_000) && !was("c", 1_000));
        assert!(!was("a", 6_001), "too long ago");
        outage.unanswered(at(1_000), at(1_100), None, GAP);
        outage.answered_other();
        let attempts = outage.current(at(1_100), GAP).unwrap();
        assert_eq!(attempts.fault().to_string(), fault().to_string());
        outage.granted();
        assert!(outage.current(at(1_100), GAP).is_none() && !was("a", 1_100));
        for n in 0..=MOST_UNCONFIRMED_KEYS {
            outage.unconfirmed(&key(&n.to_string()), at(2_000), at(2_000), fault(), GAP);
        }
        assert!(!was("0", 2_000) && was("1", 2_000) && was("64", 2_000));
    }

    #[test]
    fn attempts_that_were_given_up_show_an_outage_only_after_a_time() {
        let outage = UnansweredAttempts::default();
        let patience = Duration::from_millis(500);
        outage.unanswered(at(0), at(3), None, GAP);
        let early = outage.current(at(3), GAP).unwrap();
        assert!(!early.is_conclusive(at(3), patience));
        assert!(early.is_conclusive(at(500), patience));
        outage.unanswered(at(4), at(5), failure(), GAP);
        let failed = outage.current(at(5), GAP).unwrap();
        assert!(failed.is_conclusive(at(5), patience));
    }
}
