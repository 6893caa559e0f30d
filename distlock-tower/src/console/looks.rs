//! Looks at the server: one for all who watch, and none while nobody does.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Client, Error, KeyReport, Snapshot};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::clock::{Clock, Millis};
use super::history::{Found, History};
use super::lock::{Lock, PastHold};
use super::own::{self, Own, OwnWaiters};
use super::problems::problems;
use super::view::{Trouble, View};

/// The time from one look to the next.
const EVERY: Duration = Duration::from_secs(2);

/// How many keys of the server a page of a look goes through.
const PAGE: u32 = 500;

/// How many keys a look goes through, for each lock that it may show.
const KEYS_PER_LOCK: u64 = 10;

/// How often a scan goes through the keys: for the locks, and for the semaphores and latches.
const SWEEPS: u64 = 2;

/// Looks at one server. The first request for a newer view starts the look, and all of them wait for it.
#[derive(Debug)]
pub(super) struct Looks {
    client: Client,
    pattern: String,
    max_keys: u32,
    /// Whether also numbers are looked at that nothing shows to be a semaphore or a latch.
    all_numbers: bool,
    clock: Clock,
    turn: Mutex<Turn>,
    seen: watch::Sender<Seen>,
    history: Mutex<History>,
}

#[derive(Debug)]
struct Turn {
    /// No look begins before.
    next: Instant,
    /// Whether the task of a look runs.
    is_taken: bool,
}

/// The one task that looks, until it ends in any way.
struct Look {
    looks: Arc<Looks>,
    /// Whether it has something to tell.
    is_told: bool,
}

impl Drop for Look {
    fn drop(&mut self) {
        if !self.is_told {
            self.looks.turn.lock().is_taken = false;
            // Those who wait start the next one.
            self.looks.seen.send_modify(|_| {});
        }
    }
}

#[derive(Clone, Debug)]
struct Seen {
    view: Arc<View>,
    at: Instant,
}

impl Look {
    async fn make(mut self, next: Instant) {
        sleep_until(next).await;
        // Everybody may have gone meanwhile.
        if self.looks.seen.receiver_count() == 0 {
            return;
        }
        let looks = Arc::clone(&self.looks);
        let started = Instant::now();
        // Also for a look that is given up.
        looks.turn.lock().next = started + EVERY;
        let before = Arc::clone(&looks.seen.borrow().view);
        let view = Arc::new(looks.look(&before).await);
        let at = Instant::now();
        {
            let mut turn = looks.turn.lock();
            // A server that needs long for a look rests as long.
            turn.next = turn.next.max(at + started.elapsed());
            // Before the view is sent, so that a task that gets it can start the next look.
            turn.is_taken = false;
        }
        self.is_told = true;
        looks.seen.send_replace(Seen { view, at });
    }
}

impl Looks {
    pub(super) fn new(client: Client, pattern: String, max_keys: u32, all_numbers: bool) -> Self {
        let at = Instant::now();
        Self {
            client,
            pattern,
            max_keys,
            all_numbers,
            clock: Clock::new(),
            turn: Mutex::new(Turn {
                next: at,
                is_taken: false,
            }),
            seen: watch::Sender::new(Seen {
                view: Arc::default(),
                at,
            }),
            history: Mutex::default(),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Whether the console is about this key.
    pub(super) fn covers(&self, key: &str) -> bool {
        // A scan asks nothing until a page of it is read.
        self.client.scan(&*self.pattern).matches(key)
    }

    pub(super) fn max_keys(&self) -> u32 {
        self.max_keys
    }

    pub(super) fn now(&self) -> Millis {
        self.clock.now()
    }

    /// The last view, if it is fresh enough, or that of a new look.
    pub(super) async fn current(self: &Arc<Self>) -> Arc<View> {
        let Seen { view, at } = self.seen.borrow().clone();
        if view.look > 0 && at.elapsed() < EVERY {
            return view;
        }
        self.newer(view.look).await
    }

    /// The view of a look after this one.
    ///
    /// The look has a separate task: a stream of events that nobody reads is not polled, and must not stop a look halfway.
    pub(super) async fn newer(self: &Arc<Self>, look: u64) -> Arc<View> {
        let mut seen = self.seen.subscribe();
        loop {
            let view = Arc::clone(&seen.borrow_and_update().view);
            if view.look > look {
                return view;
            }
            self.start();
            // The sender lives as long as this value.
            let _ = seen.changed().await;
        }
    }

    /// Starts the task of a look, unless there is one.
    fn start(self: &Arc<Self>) {
        let mut turn = self.turn.lock();
        if turn.is_taken {
            return;
        }
        turn.is_taken = true;
        let next = turn.next;
        // Not held while the task starts: its drop locks it, if the runtime has ended.
        drop(turn);
        let look = Look {
            looks: Arc::clone(self),
            is_told: false,
        };
        tokio::spawn(look.make(next));
    }

    /// The holds of a key that have ended, and how many waited.
    pub(super) fn remembered(&self, key: &str) -> (Vec<PastHold>, Vec<(Millis, u64)>) {
        let history = self.history.lock();
        (history.past(key), history.waiting(key))
    }

    /// What this process holds and waits for of one key, with the times of the view if they are nearly the same.
    pub(super) fn own(&self, key: &str, view: &View) -> Own {
        let mut snapshot = self.snapshot();
        snapshot.holds.retain(|hold| hold.key == key);
        snapshot.waits.retain(|wait| wait.key == key);
        Own::new(self.now(), &snapshot, &view.own)
    }

    /// What this process holds and waits for, without the keys that the console is not about. A possible deadlock has all of its
    /// keys, but no others that are held around them.
    fn snapshot(&self) -> Snapshot {
        self.client.snapshot().matching(&self.pattern)
    }

    /// The report of a key that the view has not, as it is shown.
    pub(super) fn shown(&self, report: KeyReport) -> Option<Arc<Lock>> {
        let at = self.now();
        let snapshot = self.client.snapshot();
        let found = Found {
            look: 0,
            reports: vec![(at, report)],
            own: OwnWaiters::of(&snapshot),
            own_since: own::since(at, &snapshot),
            began: at,
            is_complete: false,
        };
        // Apart from the history of the looks, which does not know this key.
        let locks = History::default().take_in(at, found, &Default::default());
        locks.into_values().next()
    }

    /// Somebody has freed a lock by force, which was as it is here.
    pub(super) fn forced(&self, freed: &Lock, user: &str) {
        let view = Arc::clone(&self.seen.borrow().view);
        let seen = view.locks.get(&freed.key).map(|lock| &**lock);
        self.history.lock().forced(self.now(), freed, seen, user);
    }

    async fn look(&self, before: &View) -> View {
        let look = before.look + 1;
        let began = self.now();
        let scanned = self.scan().await;
        let now = self.now();
        // It asks no server, and is there also when none answers.
        let snapshot = self.snapshot();
        let mut history = self.history.lock();
        let mut view = View {
            look,
            ..View::default()
        };
        match scanned {
            Ok(Scanned {
                reports,
                is_cut,
                failed,
            }) => {
                let rights = reports
                    .iter()
                    .flat_map(|(_, report)| &report.missing_rights);
                view.missing_rights = rights.copied().collect();
                view.is_cut = is_cut;
                view.trouble = failed.as_ref().map(Trouble::of_a_part);
                let found = Found {
                    look,
                    reports,
                    own: OwnWaiters::of(&snapshot),
                    own_since: own::since(now, &snapshot),
                    began,
                    is_complete: !is_cut && failed.is_none(),
                };
                view.locks = history.take_in(now, found, &before.locks);
            }
            Err(error) => {
                view.trouble = Some(Trouble::new(&error));
                view.is_cut = before.is_cut;
                view.missing_rights.clone_from(&before.missing_rights);
                view.locks.clone_from(&before.locks);
            }
        }
        view.contention = history.contention();
        view.own = Own::new(now, &snapshot, &before.own);
        view.problems = problems(now, &view.locks, &history, &snapshot);
        view
    }

    async fn scan(&self) -> Result<Scanned, Error> {
        let scan = self.client.scan(&*self.pattern).page_size(PAGE);
        let mut scan = if self.all_numbers {
            scan
        } else {
            scan.skip_numbers()
        };
        let most = usize::try_from(self.max_keys).unwrap_or(usize::MAX);
        let most_keys = u64::from(self.max_keys) * KEYS_PER_LOCK;
        let most_pages = SWEEPS * most_keys.div_ceil(u64::from(PAGE));
        let mut reports = Vec::new();
        let mut pages = 0;
        let mut failed = None;
        loop {
            let page = match scan.next_page().await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(error) if reports.is_empty() => return Err(error),
                // A node of a cluster is away. The others were read before it.
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            };
            let at = self.now();
            reports.extend(page.into_iter().map(|report| (at, report)));
            pages += 1;
            if reports.len() > most || pages > most_pages {
                reports.truncate(most);
                return Ok(Scanned {
                    reports,
                    is_cut: true,
                    failed,
                });
            }
        }
        Ok(Scanned {
            reports,
            is_cut: false,
            failed,
        })
    }
}

struct Scanned {
    reports: Vec<(Millis, KeyReport)>,
    is_cut: bool,
    /// Why the look has ended before all was seen.
    failed: Option<Error>,
}
