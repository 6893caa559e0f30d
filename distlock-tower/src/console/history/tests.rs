//! What the console remembers, by looks at a server in memory.

use std::time::Duration;

use distlock::{Client, MemoryServer};

use super::*;
use crate::console::own;

/// A history that takes in what a client sees.
pub(super) struct Watched {
    pub(super) history: History,
    pub(super) locks: BTreeMap<String, Arc<Lock>>,
    pub(super) look: u64,
    client: Client,
}

impl Watched {
    pub(super) fn new(server: &MemoryServer) -> Self {
        Self {
            history: History::default(),
            locks: BTreeMap::new(),
            look: 0,
            client: Client::builder().in_memory(server).unwrap(),
        }
    }

    /// A key as it is now, apart from the looks.
    async fn seen(&self, key: &str) -> Lock {
        let report = self.client.inspect(key).await.unwrap();
        let sight = Sight {
            at: 0,
            is_exact: false,
            own_since: &HashMap::new(),
        };
        lock(sight, &report, OwnWaiters::default(), None)
    }

    async fn force_release(&mut self, key: &str, now: Millis) {
        let freed = self.seen(key).await;
        self.client.lock(key).force_release().await.unwrap();
        let seen = self.locks.get(key).map(|lock| &**lock);
        self.history.forced(now, &freed, seen, "ann");
    }

    pub(super) async fn look(&mut self, now: Millis) {
        self.look_through(now, |_| {}).await;
    }

    /// The look changes what the server has told of each key.
    pub(super) async fn look_through(&mut self, now: Millis, change: fn(&mut KeyReport)) {
        let mut reports = self.scan(now).await;
        reports.iter_mut().for_each(|(_, report)| change(report));
        self.take_in(now, now, reports, true);
    }

    /// A look that ends before it has gone to a key.
    pub(super) fn look_at_nothing(&mut self, now: Millis) {
        self.take_in(now, now, Vec::new(), false);
    }

    pub(super) async fn slow_look(&mut self, began: Millis, now: Millis) {
        let reports = self.scan(began).await;
        self.take_in(began, now, reports, true);
    }

    async fn scan(&self, at: Millis) -> Vec<(Millis, KeyReport)> {
        let mut reports = Vec::new();
        let mut scan = self.client.scan("*");
        while let Some(page) = scan.next_page().await.unwrap() {
            reports.extend(page.into_iter().map(|report| (at, report)));
        }
        reports
    }

    fn take_in(
        &mut self,
        began: Millis,
        now: Millis,
        reports: Vec<(Millis, KeyReport)>,
        is_complete: bool,
    ) {
        self.look += 1;
        let found = Found {
            look: self.look,
            reports,
            own: HashMap::new(),
            own_since: own::since(now, &self.client.snapshot()),
            began,
            is_complete,
        };
        self.locks = self.history.take_in(now, found, &self.locks);
    }
}

pub(super) fn unreadable(report: &mut KeyReport) {
    report.fault = Some(String::from("odd"));
    report.holders.clear();
    report.holder_total = 0;
}

#[tokio::test(start_paused = true)]
async fn hold_of_a_key_that_cannot_be_read_for_a_while_goes_on() {
    let server = MemoryServer::new();
    let mut watched = Watched::new(&server);
    let guard = watched.client.lock("a").acquire().await.unwrap();
    watched.look(1_000).await;
    watched.look_through(2_000, unreadable).await;
    let lock = &watched.locks["a"];
    assert_eq!(lock.fault.as_deref(), Some("odd"));
    assert_eq!((lock.holders.len(), lock.holder_total), (1, 1));
    watched.look(3_000).await;
    let lock = &watched.locks["a"];
    assert_eq!((&lock.fault, lock.holders[0].since), (&None, 1_000));
    assert!(watched.history.past("a").is_empty());
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn hold_that_was_released_between_two_looks_is_past_with_its_times() {
    let server = MemoryServer::new();
    let mut watched = Watched::new(&server);
    let other = Client::builder().name("other").in_memory(&server).unwrap();
    watched.look(1_000).await;
    let guard = other.lock("a").acquire().await.unwrap();
    watched.look(3_000).await;
    let holder = &watched.locks["a"].holders[0];
    assert_eq!((holder.since, holder.is_since_exact), (3_000, true));
    guard.release().await.unwrap();
    watched.look(5_000).await;
    assert!(watched.locks.is_empty());
    let past = watched.history.past("a");
    assert_eq!((past[0].since, past[0].until), (3_000, 5_000));
    assert_eq!(past[0].last_seen, 3_000);
    assert_eq!((past[0].end, past[0].is_exact), (End::Released, true));
    assert_eq!(past[0].client.as_ref().unwrap().name, "other");
}

#[tokio::test(start_paused = true)]
async fn hold_that_was_there_at_the_first_look_began_at_an_unknown_time() {
    let server = MemoryServer::new();
    let mut watched = Watched::new(&server);
    let other = Client::builder().in_memory(&server).unwrap();
    let _guard = other.lock("a").acquire().await.unwrap();
    watched.look(1_000).await;
    assert!(!watched.locks["a"].holders[0].is_since_exact);
}

#[tokio::test(start_paused = true)]
async fn hold_of_this_process_began_when_it_was_acquired_although_nobody_watched() {
    let server = MemoryServer::new();
    let mut watched = Watched::new(&server);
    let guard = watched.client.lock("a").acquire().await.unwrap();
    let write = watched.client.rw_lock("write").write();
    let _write = write.acquire().await.unwrap();
    tokio::time::advance(Duration::from_millis(700)).await;
    watched.look(1_000).await;
    tokio::time::advance(Duration::from_secs(2)).await;
    watched.look(3_000).await;
    for key in ["a", "write"] {
        let holder = &watched.locks[key].holders[0];
        assert_eq!((holder.since, holder.is_since_exact), (300, true), "{key}");
    }
    guard.release().await.unwrap();
    watched.look(5_000).await;
    let past = &watched.history.past("a")[0];
    assert_eq!(
        (past.since, past.last_seen, past.until),
        (300, 3_000, 5_000)
    );
    assert!(past.is_exact);
}

#[tokio::test(start_paused = true)]
async fn hold_that_was_freed_by_force_ended_when_the_console_freed_it() {
    let server = MemoryServer::new();
    let mut watched = Watched::new(&server);
    let _guard = watched.client.lock("a").acquire().await.unwrap();
    watched.look(1_000).await;
    watched.force_release("a", 1_700).await;
    watched.look(3_000).await;
    let [past] = &watched.history.past("a")[..] else {
        panic!("one hold has ended");
    };
    assert_eq!((past.last_seen, past.until), (1_700, 1_700));
    assert_eq!(
        (past.end, past.by.as_deref()),
        (End::ForceReleased, Some("ann"))
    );
}

#[tokio::test(start_paused = true)]
async fn hold_that_no_look_has_seen_is_past_once_it_is_freed_by_force() {
    let server = MemoryServer::new();
    let mut watched = Watched::new(&server);
    let other = Client::builder().name("other").in_memory(&server).unwrap();
    watched.look(1_000).await;
    let _guard = other.lock("a").acquire().await.unwrap();
    let seen = watched.seen("a").await;
    watched.force_release("a", 1_700).await;
    for later in [false, true] {
        let [past] = &watched.history.past("a")[..] else {
            panic!("one hold has ended");
        };
        assert_eq!((past.last_seen, past.until), (1_700, 1_700));
        assert_eq!(
            (past.end, past.by.as_deref(), past.is_exact),
            (End::ForceReleased, Some("ann"), false)
        );
        assert_eq!(past.client.as_ref().unwrap().name, "other");
        // The look that was under way has seen the hold, and the next one ends it.
        if !later {
            watched
                .locks
                .insert(String::from("a"), Arc::new(seen.clone()));
            watched.look(3_000).await;
        }
    }
}

/// A thread of Redisson is the same owner each time.
#[tokio::test(start_paused = true)]
async fn owner_that_was_freed_by_force_and_holds_the_key_again_is_released_like_any_other() {
    let server = MemoryServer::new();
    let mut watched = Watched::new(&server);
    watched.look(1_000).await;
    let guard = watched.client.lock("a").acquire().await.unwrap();
    // The same owner as before, since nothing is taken from it here.
    let freed = watched.seen("a").await;
    watched.history.forced(1_700, &freed, None, "ann");
    watched.look(3_000).await;
    watched.look(5_000).await;
    guard.release().await.unwrap();
    watched.look(7_000).await;
    let past = watched.history.past("a");
    let ends: Vec<_> = past.iter().map(|past| (past.end, past.until)).collect();
    assert_eq!(ends, [(End::Released, 7_000), (End::ForceReleased, 1_700)]);
}

#[tokio::test(start_paused = true)]
async fn hold_whose_lease_was_over_before_it_was_gone_ran_out() {
    let server = MemoryServer::new();
    let mut watched = Watched::new(&server);
    let lock = watched.client.lock("a");
    let lease = Duration::from_secs(3);
    let guard = lock.acquire().lease(lease).await.unwrap();
    watched.look(1_000).await;
    tokio::time::advance(2 * lease).await;
    drop(guard);
    watched.look(7_000).await;
    assert_eq!(watched.history.past("a")[0].end, End::LeaseRanOut);
    assert_eq!(watched.history.ran_out(7_000).count(), 1);
    assert_eq!(watched.history.ran_out(7_000 + CONTENTION_SPAN).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn hold_that_ended_while_nobody_watched_ended_in_an_unknown_way() {
    let server = MemoryServer::new();
    let mut watched = Watched::new(&server);
    watched.look(1_000).await;
    let guard = watched.client.lock("a").acquire().await.unwrap();
    watched.look(3_000).await;
    // Longer than its lease, which is renewed.
    tokio::time::sleep(Duration::from_secs(60)).await;
    guard.release().await.unwrap();
    watched.look(65_000).await;
    assert_eq!(watched.history.past("a")[0].end, End::Unknown);
    assert_eq!(watched.history.ran_out(65_000).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn only_what_changed_since_a_look_counts_as_changed() {
    let server = MemoryServer::new();
    let mut watched = Watched::new(&server);
    let _a = watched.client.lock("a").acquire().await.unwrap();
    watched.look(1_000).await;
    let _b = watched.client.lock("b").acquire().await.unwrap();
    tokio::time::advance(Duration::from_secs(2)).await;
    watched.look(3_000).await;
    let changed = watched.locks.values().map(|lock| lock.changed);
    assert_eq!(changed.collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn contention_of_a_key_is_the_most_that_waited_in_each_step() {
    let server = MemoryServer::new();
    let mut watched = Watched::new(&server);
    let other = Client::builder().in_memory(&server).unwrap();
    let guard = other.fair_lock("a").acquire().await.unwrap();
    watched.look(1_000_000).await;
    assert!(watched.locks["a"].contention.is_empty());
    let waits = tokio::spawn(other.fair_lock("a").acquire().into_future());
    tokio::time::sleep(Duration::from_millis(100)).await;
    watched.look(1_002_000).await;
    watched.look(1_025_000).await;
    assert_eq!(watched.locks["a"].contention[27..], [1, 1, 1]);
    assert_eq!(watched.locks["a"].contention[..27], [0; 27]);
    guard.release().await.unwrap();
    let _second = waits.await.unwrap().unwrap();
    watched.look(1_031_000).await;
    watched.look(1_045_000).await;
    assert_eq!(watched.locks["a"].contention[25..], [1, 1, 1, 1, 0]);
    watched.look(1_045_000 + CONTENTION_SPAN).await;
    assert!(watched.locks["a"].contention.is_empty());
}

#[tokio::test(start_paused = true)]
async fn only_some_of_the_free_keys_are_remembered() {
    let server = MemoryServer::new();
    let mut watched = Watched::new(&server);
    for number in 0..PAST_KEYS as u64 + 10 {
        let free = watched.seen(&format!("k{number}")).await;
        watched.history.forced(number, &free, None, "somebody");
    }
    watched.look(1_000_000).await;
    assert_eq!(watched.history.keys.len(), PAST_KEYS);
    assert!(!watched.history.keys.contains_key("k9"));
}
