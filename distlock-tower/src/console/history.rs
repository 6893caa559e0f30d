//! What the console remembers from look to look: since when each hold is there, and which ones have ended.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use distlock::{HolderReport, KeyReport, WaiterReport, visible};

use super::clock::{Millis, millis};
use super::lock::{End, Holder, Lock, Named, PastHold, Permits, Sample, Waiter, can_be_released};
use super::own::OwnWaiters;

/// How far back contention is remembered.
pub(super) const CONTENTION_SPAN: Millis = 5 * 60 * 1_000;

/// Contention of one key is shown in steps of this length.
const STEP: Millis = 10_000;

/// How many ended holds are remembered of one key.
const PAST_HOLDS: usize = 50;

/// Of how many keys that are free the history is kept.
const PAST_KEYS: usize = 1_000;

/// Two looks at one lease differ by so much at most, unless it was renewed.
const LEASE_TOLERANCE: Millis = 1_000;

/// What is remembered of all keys.
#[derive(Debug, Default)]
pub(super) struct History {
    keys: HashMap<String, KeyHistory>,
    contention: VecDeque<Sample>,
    /// The time of the last look.
    looked: Option<Millis>,
}

/// What is remembered of one key.
#[derive(Debug, Default)]
struct KeyHistory {
    past: VecDeque<PastHold>,
    /// The most that waited at a look, by owner of the hold that was there.
    most_waiting: HashMap<String, u64>,
    /// How many waited, and since when.
    waiting: VecDeque<(Millis, u64)>,
    /// Who has freed it by force, by owner of the hold that was there. A look that was under way may still have seen it.
    forced_by: HashMap<String, String>,
    changed: Millis,
}

/// What one look has found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) look: u64,
    /// Each report with the time at which it came.
    pub(super) reports: Vec<(Millis, KeyReport)>,
    /// Who waits for which key in this process.
    pub(super) own: HashMap<String, OwnWaiters>,
    /// Whether a key that is not among the reports is gone.
    pub(super) is_complete: bool,
    /// Whether nobody watched for a while before this look.
    pub(super) is_after_pause: bool,
}

impl History {
    /// Takes in what a look has found. `earlier` are the locks of the look before.
    pub(super) fn take_in(
        &mut self,
        now: Millis,
        found: Found,
        earlier: &BTreeMap<String, Arc<Lock>>,
    ) -> BTreeMap<String, Arc<Lock>> {
        let is_exact = self.looked.is_some() && !found.is_after_pause;
        self.looked = Some(now);
        let mut locks = BTreeMap::new();
        for (at, report) in found.reports {
            let before = earlier.get(&report.key);
            let own = found.own.get(&report.key).copied().unwrap_or_default();
            let mut lock = lock(at, &report, own, before.map(|lock| &**lock), is_exact);
            lock.changed = before.map_or(0, |before| before.changed);
            lock.contention = before.map_or_else(Vec::new, |before| before.contention.clone());
            let lock = match before {
                Some(before) if **before == lock => Arc::clone(before),
                _ => {
                    lock.changed = found.look;
                    Arc::new(lock)
                }
            };
            locks.insert(lock.key.clone(), lock);
        }
        for (key, before) in earlier {
            let lock = locks.get(key);
            if lock.is_some() || found.is_complete {
                self.end_holds(now, before, lock.map(|lock| &**lock), is_exact);
            }
        }
        for lock in locks.values_mut() {
            self.note_waiting(now, lock);
            let contention = self.contention_of(&lock.key, now);
            if lock.contention != contention {
                let lock = Arc::make_mut(lock);
                (lock.contention, lock.changed) = (contention, found.look);
            }
        }
        self.note_contention(now, &locks);
        self.forget(&locks);
        locks
    }

    /// Somebody has freed a lock by force.
    pub(super) fn forced(&mut self, now: Millis, report: &KeyReport, who: &str) {
        let history = self.keys.entry(report.key.clone()).or_default();
        if history.forced_by.len() > PAST_HOLDS {
            history.forced_by.clear();
        }
        let owners = report.holders.iter().map(|holder| holder.owner.clone());
        history
            .forced_by
            .extend(owners.map(|owner| (owner, who.to_owned())));
        history.changed = now;
    }

    pub(super) fn contention(&self) -> Vec<Sample> {
        self.contention.iter().copied().collect()
    }

    /// The holds of a key that have ended, the last one first.
    pub(super) fn past(&self, key: &str) -> Vec<PastHold> {
        let past = self.keys.get(key).map(|history| &history.past);
        past.into_iter().flatten().rev().cloned().collect()
    }

    /// How many waited for a key, and since when.
    pub(super) fn waiting(&self, key: &str) -> Vec<(Millis, u64)> {
        let waiting = self.keys.get(key).map(|history| &history.waiting);
        waiting.into_iter().flatten().copied().collect()
    }

    /// The most that waited for a key in each step of the span, the oldest step first. Empty if nobody has waited.
    fn contention_of(&self, key: &str, now: Millis) -> Vec<u64> {
        let changes = self.keys.get(key).map(|history| &history.waiting);
        let mut changes = changes.into_iter().flatten().peekable();
        let last = now / STEP;
        let first = (last + 1).saturating_sub(CONTENTION_SPAN / STEP);
        let mut most = vec![0; (last + 1 - first) as usize];
        while let Some((since, waiting)) = changes.next() {
            let until = changes
                .peek()
                .map_or(now, |(next, _)| next.saturating_sub(1));
            let steps = (since / STEP).max(first)..=(until / STEP).min(last);
            for step in steps {
                let step = &mut most[(step - first) as usize];
                *step = (*step).max(*waiting);
            }
        }
        if most.iter().all(|waiting| *waiting == 0) {
            Vec::new()
        } else {
            most
        }
    }

    /// The holds whose lease ran out within the span of the contention, with their keys.
    pub(super) fn ran_out(&self, now: Millis) -> impl Iterator<Item = (&str, &PastHold)> {
        self.keys.iter().flat_map(move |(key, history)| {
            let lost = history.past.iter().filter(move |past| {
                past.end == End::LeaseRanOut && now.saturating_sub(past.until) < CONTENTION_SPAN
            });
            lost.map(|past| (key.as_str(), past))
        })
    }

    /// Notes the holders that were there before and are not any more.
    fn end_holds(&mut self, now: Millis, before: &Lock, after: Option<&Lock>, is_exact: bool) {
        let is_there = |owner: &str| {
            let mut holders = after.into_iter().flat_map(|lock| &lock.holders);
            holders.any(|holder| holder.owner == owner)
        };
        let mut ended = before.holders.iter();
        let ended: Vec<&Holder> = ended
            .by_ref()
            .filter(|holder| !is_there(&holder.owner))
            .collect();
        if ended.is_empty() {
            return;
        }
        let history = self.keys.entry(before.key.clone()).or_default();
        for holder in ended {
            let has_run_out = holder.lease_ends.is_some_and(|ends| ends <= now);
            let by = history.forced_by.remove(&holder.owner);
            let end = match &by {
                Some(_) => End::ForceReleased,
                // Its lease may have been renewed while nobody watched.
                None if !is_exact => End::Unknown,
                // A released lock stays taken until its lease ends.
                None if has_run_out && !holder.is_released => End::LeaseRanOut,
                None => End::Released,
            };
            history.past.push_back(PastHold {
                owner: holder.owner.clone(),
                client: holder.client.clone(),
                since: holder.since,
                until: now,
                is_exact: is_exact && holder.is_since_exact,
                most_waiting: history.most_waiting.remove(&holder.owner).unwrap_or(0),
                end,
                by,
            });
        }
        let excess = history.past.len().saturating_sub(PAST_HOLDS);
        history.past.drain(..excess);
        history.changed = now;
        if after.is_none() {
            note_change(&mut history.waiting, now, 0);
        }
    }

    fn note_waiting(&mut self, now: Millis, lock: &Lock) {
        if lock.waiting == 0 && !self.keys.contains_key(&lock.key) {
            return;
        }
        let history = self.keys.entry(lock.key.clone()).or_default();
        history.changed = now;
        note_change(&mut history.waiting, now, lock.waiting);
        history
            .most_waiting
            .retain(|owner, _| lock.holders.iter().any(|holder| holder.owner == *owner));
        for holder in lock.holders.iter().filter(|_| lock.waiting > 0) {
            let most = history
                .most_waiting
                .entry(holder.owner.clone())
                .or_default();
            *most = lock.waiting.max(*most);
        }
    }

    fn note_contention(&mut self, now: Millis, locks: &BTreeMap<String, Arc<Lock>>) {
        let held = locks.values().filter(|lock| lock.holder_total > 0);
        self.contention.push_back(Sample {
            at: now,
            held: millis(held.count() as u128),
            waiting: locks.values().map(|lock| lock.waiting).sum(),
            listening: locks.values().filter_map(|lock| lock.listening).sum(),
        });
        while let Some(first) = self.contention.front()
            && now.saturating_sub(first.at) > CONTENTION_SPAN
        {
            self.contention.pop_front();
        }
    }

    /// Forgets the free keys that changed longest ago, if there are many.
    fn forget(&mut self, locks: &BTreeMap<String, Arc<Lock>>) {
        let free = self
            .keys
            .iter()
            .filter(|(key, _)| !locks.contains_key(*key));
        let mut free: Vec<(Millis, String)> = free
            .map(|(key, history)| (history.changed, key.clone()))
            .collect();
        free.sort_unstable_by(|one, other| other.cmp(one));
        for (_, key) in free.into_iter().skip(PAST_KEYS) {
            self.keys.remove(&key);
        }
    }
}

/// Notes a number if it differs from the last one.
fn note_change(changes: &mut VecDeque<(Millis, u64)>, now: Millis, number: u64) {
    if changes.back().map_or(0, |(_, last)| *last) != number {
        changes.push_back((now, number));
    }
    // The first one says how many waited when the span began.
    while changes.len() > 1 && now.saturating_sub(changes[1].0) > CONTENTION_SPAN {
        changes.pop_front();
    }
}

/// A report as the console shows it, with what is known from the look before.
fn lock(
    at: Millis,
    report: &KeyReport,
    own: OwnWaiters,
    before: Option<&Lock>,
    is_exact: bool,
) -> Lock {
    // That it cannot be read at this moment does not say that its holds have ended.
    if let (Some(_), Some(before)) = (&report.fault, before) {
        return Lock {
            fault: report.fault.clone(),
            contention: Vec::new(),
            changed: 0,
            ..before.clone()
        };
    }
    let holder = |holder: &HolderReport| {
        let known = before.and_then(|lock| lock.holders.iter().find(|it| it.owner == holder.owner));
        known_holder(at, holder, known, is_exact)
    };
    let waiter = |waiter: &WaiterReport| {
        let known = before.and_then(|lock| lock.waiters.iter().find(|it| it.owner == waiter.owner));
        Waiter {
            owner: waiter.owner.clone(),
            client: waiter.client.as_ref().map(Named::new),
            since: known.map_or(at, |known| known.since),
            place_ends: end(at, waiter.place_left, known.map(|known| known.place_ends)),
        }
    };
    let holders: Vec<Holder> = report.holders.iter().map(holder).collect();
    let expires_at = before.and_then(|lock| lock.expires_at);
    Lock {
        key: report.key.clone(),
        shown: visible(&report.key).into_owned(),
        primitive: report.primitive.to_string(),
        holders,
        holder_total: report.holder_total,
        waiters: report.waiters.iter().map(waiter).collect(),
        waiter_total: report.waiter_total,
        waiting: own.with(report.waiter_total, report.listeners.unwrap_or(0)),
        listening: report.listeners,
        permits: report.permits.map(|permits| Permits {
            free: permits.free,
            taken: permits.taken,
        }),
        count: report.count,
        fencing_token: report.fencing_token,
        fault: report.fault.clone(),
        expires_at: report.expires_in.map(|left| end(at, left, expires_at)),
        can_be_released: can_be_released(report),
        contention: Vec::new(),
        changed: 0,
    }
}

fn known_holder(
    at: Millis,
    holder: &HolderReport,
    known: Option<&Holder>,
    is_exact: bool,
) -> Holder {
    let lease = holder.lease_left.map(|left| millis(left.as_millis()));
    let longest = known.and_then(|known| known.lease_millis);
    let ends = known.and_then(|known| known.lease_ends);
    Holder {
        owner: holder.owner.clone(),
        client: holder.client.as_ref().map(Named::new),
        count: holder.count,
        since: known.map_or(at, |known| known.since),
        is_since_exact: known.map_or(is_exact, |known| known.is_since_exact),
        lease_ends: holder.lease_left.map(|left| end(at, left, ends)),
        lease_millis: lease.map(|lease| lease.max(longest.unwrap_or(0))),
        is_released: holder.is_released,
    }
}

/// When a time is over. Without a renewal it is the end that was known before, so that it does not seem to change.
fn end(at: Millis, left: Duration, known: Option<Millis>) -> Millis {
    let end = at.saturating_add(millis(left.as_millis()));
    known
        .filter(|known| known.abs_diff(end) <= LEASE_TOLERANCE)
        .unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use distlock::{Client, MemoryServer};

    use super::*;

    /// A history that takes in what a client sees.
    struct Watched {
        history: History,
        locks: BTreeMap<String, Arc<Lock>>,
        look: u64,
        client: Client,
        is_after_pause: bool,
    }

    impl Watched {
        fn new(server: &MemoryServer) -> Self {
            Self {
                history: History::default(),
                locks: BTreeMap::new(),
                look: 0,
                client: Client::builder().in_memory(server).unwrap(),
                is_after_pause: false,
            }
        }

        async fn look(&mut self, now: Millis) {
            self.look_through(now, |_| {}).await;
        }

        /// The look changes what the server has told of each key.
        async fn look_through(&mut self, now: Millis, change: fn(&mut KeyReport)) {
            let mut reports = Vec::new();
            let mut scan = self.client.scan("*");
            while let Some(page) = scan.next_page().await.unwrap() {
                reports.extend(page.into_iter().map(|report| (now, report)));
            }
            reports.iter_mut().for_each(|(_, report)| change(report));
            self.look += 1;
            let found = Found {
                look: self.look,
                reports,
                own: HashMap::new(),
                is_complete: true,
                is_after_pause: self.is_after_pause,
            };
            self.locks = self.history.take_in(now, found, &self.locks);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn hold_of_a_key_that_cannot_be_read_for_a_while_goes_on() {
        let server = MemoryServer::new();
        let mut watched = Watched::new(&server);
        let guard = watched.client.lock("a").acquire().await.unwrap();
        watched.look(1_000).await;
        let unreadable = |report: &mut KeyReport| {
            report.fault = Some(String::from("odd"));
            report.holders.clear();
            report.holder_total = 0;
        };
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
        assert_eq!((past[0].end, past[0].is_exact), (End::Released, true));
        assert_eq!(past[0].client.as_ref().unwrap().name, "other");
    }

    #[tokio::test(start_paused = true)]
    async fn hold_that_was_there_at_the_first_look_began_at_an_unknown_time() {
        let server = MemoryServer::new();
        let mut watched = Watched::new(&server);
        let _guard = watched.client.lock("a").acquire().await.unwrap();
        watched.look(1_000).await;
        assert!(!watched.locks["a"].holders[0].is_since_exact);
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
        watched.is_after_pause = true;
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
            let report = watched.client.inspect(format!("k{number}")).await.unwrap();
            watched.history.forced(number, &report, "somebody");
        }
        watched.look(1_000_000).await;
        assert_eq!(watched.history.keys.len(), PAST_KEYS);
        assert!(!watched.history.keys.contains_key("k9"));
    }
}
