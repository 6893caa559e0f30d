//! What a person on call should see first: tasks and clients that may wait for each other, and holds that were lost.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use distlock::{LossSnapshot, Snapshot, WaitSnapshot, visible};
use serde::Serialize;

use super::clock::{Millis, millis};
use super::history::{CONTENTION_SPAN, History};
use super::lock::{Holder, Lock, Named, Waiter};
use super::own::{self, before_now};

/// How long a hold and a wait have stood before they count towards a deadlock. Others are likely to end by themselves.
const STANDS: Millis = 10_000;

/// How many problems are shown.
const MOST: usize = 20;

/// How many waits are followed.
const MOST_EDGES: usize = 2_000;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Problem {
    pub(super) kind: &'static str,
    /// The keys that it is about.
    pub(super) keys: Vec<String>,
    /// The keys as people can see them, in the same order.
    pub(super) shown: Vec<String>,
    pub(super) text: String,
    pub(super) at: Millis,
}

impl Problem {
    fn new(kind: &'static str, keys: Vec<String>, text: String, at: Millis) -> Self {
        Self {
            kind,
            shown: keys.iter().map(|key| visible(key).into_owned()).collect(),
            keys,
            text,
            at,
        }
    }
}

/// Possible deadlocks, in this process and between clients, and then holds that were lost, the last one first.
pub(super) fn problems(
    now: Millis,
    locks: &BTreeMap<String, Arc<Lock>>,
    history: &History,
    snapshot: &Snapshot,
) -> Vec<Problem> {
    let own_cycles = snapshot.cycles.iter();
    let mut problems: Vec<Problem> = own_cycles.map(|one| own_cycle(now, one)).collect();
    problems.extend(deadlocks(now, locks));
    let own_losses = snapshot.losses.iter();
    let own_losses = own_losses.filter(|lost| millis(lost.ago.as_millis()) < CONTENTION_SPAN);
    let mut losses: Vec<Problem> = own_losses.clone().map(|lost| own_loss(now, lost)).collect();
    let own_losses: BTreeSet<String> = own_losses.map(|lost| lost.owner.to_string()).collect();
    let ran_out = history.ran_out(now);
    let ran_out = ran_out.filter(|(_, past)| !own_losses.contains(own::owner(&past.owner)));
    losses.extend(ran_out.map(|(key, past)| {
        let text = format!(
            "the lease of {} ran out while it held the lock",
            named(past.client.as_ref(), &past.owner)
        );
        Problem::new("lease_ran_out", vec![key.to_owned()], text, past.until)
    }));
    losses.sort_by(|one, other| (other.at, &one.keys).cmp(&(one.at, &other.keys)));
    problems.extend(losses);
    problems.truncate(MOST);
    problems
}

/// Tasks of this process that wait for each other.
fn own_cycle(now: Millis, cycle: &[WaitSnapshot]) -> Problem {
    let waits = cycle.iter().map(|wait| {
        let inside: Vec<_> = wait.inside.iter().map(|key| visible(key)).collect();
        let key = visible(&wait.key);
        let inside = inside.join(", ");
        format!("{} waits for {key} and holds {inside}", wait.call_site)
    });
    let since = cycle.iter().map(|wait| before_now(now, wait.waited)).max();
    let keys = cycle.iter().map(|wait| wait.key.clone()).collect();
    let text = waits.collect::<Vec<_>>().join("; ");
    Problem::new("possible_deadlock", keys, text, since.unwrap_or_default())
}

/// A hold that this process has lost.
fn own_loss(now: Millis, lost: &LossSnapshot) -> Problem {
    let text = format!(
        "this process lost what {} acquired: {}",
        lost.call_site, lost.loss
    );
    let at = before_now(now, lost.ago);
    Problem::new("lost", vec![lost.key.clone()], text, at)
}

/// One client waits for a key that another one holds.
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    key: &'a str,
    waiter: &'a Waiter,
    holder: &'a Holder,
}

/// Cycles of clients: each waits for a key that the next one holds. Only the queues of fair locks say who waits.
fn deadlocks(now: Millis, locks: &BTreeMap<String, Arc<Lock>>) -> Vec<Problem> {
    let stands = move |since: Millis| now.saturating_sub(since) >= STANDS;
    let edges = locks.values().flat_map(|lock| {
        let waiters = lock
            .waiters
            .iter()
            .filter(move |waiter| stands(waiter.since));
        waiters.flat_map(move |waiter| {
            let holders = lock
                .holders
                .iter()
                .filter(move |holder| stands(holder.since));
            holders.map(move |holder| Edge {
                from: client(&waiter.owner),
                to: client(&holder.owner),
                key: &lock.key,
                waiter,
                holder,
            })
        })
    });
    // Two tasks of one client that wait for each other look the same as any other queue in that client.
    let edges = edges.filter(|edge| edge.from != edge.to).take(MOST_EDGES);
    let mut waits: HashMap<&str, Vec<Edge<'_>>> = HashMap::new();
    for edge in edges {
        waits.entry(edge.from).or_default().push(edge);
    }
    let mut cycles: BTreeMap<BTreeSet<&str>, Vec<&Edge<'_>>> = BTreeMap::new();
    // Each cycle is found from all of its clients.
    for edge in waits.values().flatten() {
        if let Some(cycle) = cycle(edge, &waits) {
            let keys = cycle.iter().map(|edge| edge.key).collect();
            cycles.entry(keys).or_insert(cycle);
        }
    }
    cycles.into_values().map(|cycle| problem(&cycle)).collect()
}

/// The shortest way from the holder back to the waiter.
fn cycle<'a, 'b>(
    start: &'b Edge<'a>,
    waits: &'b HashMap<&'a str, Vec<Edge<'a>>>,
) -> Option<Vec<&'b Edge<'a>>> {
    let mut ways = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::from([start.to]);
    while let Some(way) = ways.pop_front() {
        let next = waits.get(way.last()?.to).into_iter().flatten();
        for edge in next {
            let mut way = way.clone();
            way.push(edge);
            if edge.to == start.from {
                return Some(way);
            }
            if seen.insert(edge.to) {
                ways.push_back(way);
            }
        }
    }
    None
}

fn problem(cycle: &[&Edge<'_>]) -> Problem {
    let waits = cycle.iter().map(|edge| {
        format!(
            "{} waits for {}, which {} holds",
            named(edge.waiter.client.as_ref(), &edge.waiter.owner),
            visible(edge.key),
            named(edge.holder.client.as_ref(), &edge.holder.owner)
        )
    });
    let since = cycle.iter().map(|edge| edge.waiter.since).max();
    let keys = cycle.iter().map(|edge| edge.key.to_owned()).collect();
    let text = waits.collect::<Vec<_>>().join("; ");
    Problem::new("possible_deadlock", keys, text, since.unwrap_or_default())
}

/// The client in the text of an owner: what stands before the number of the acquisition.
fn client(owner: &str) -> &str {
    owner.split_once(':').map_or(owner, |(client, _)| client)
}

fn named<'a>(client: Option<&'a Named>, owner: &'a str) -> &'a str {
    client.map_or(owner, |client| client.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(key: &str, holder: &str, waiter: &str, since: Millis) -> (String, Arc<Lock>) {
        let holder = Holder {
            owner: format!("{holder}:1"),
            client: None,
            count: 1,
            since: 0,
            is_since_exact: true,
            lease_ends: None,
            lease_millis: None,
            is_released: false,
        };
        let waiter = Waiter {
            owner: format!("{waiter}:2"),
            client: None,
            since,
            place_ends: 0,
        };
        let lock = Lock {
            key: key.to_owned(),
            shown: key.to_owned(),
            primitive: String::from("fair_lock"),
            holders: vec![holder],
            holder_total: 1,
            waiters: vec![waiter],
            waiter_total: 1,
            waiting: 1,
            listening: None,
            permits: None,
            count: None,
            fencing_token: None,
            fault: None,
            expires_at: None,
            can_be_released: true,
            contention: Vec::new(),
            changed: 0,
        };
        (key.to_owned(), Arc::new(lock))
    }

    #[test]
    fn clients_that_wait_for_each_other_for_long_are_one_possible_deadlock() {
        let locks = [
            lock("a", "x", "y", 5),
            lock("b", "y", "z", 5),
            lock("c", "z", "x", 5),
        ];
        let found = deadlocks(20_000, &locks.into());
        assert_eq!(found.len(), 1, "{found:?}");
        let mut keys = found[0].keys.clone();
        keys.sort();
        assert_eq!(keys, ["a", "b", "c"]);
    }

    #[test]
    fn clients_that_began_to_wait_just_now_are_no_deadlock() {
        let locks = [lock("a", "x", "y", 15_000), lock("b", "y", "x", 5)];
        assert_eq!(deadlocks(20_000, &locks.into()), []);
    }

    #[test]
    fn chain_and_queue_within_one_client_are_no_deadlock() {
        let locks = [
            lock("a", "x", "y", 5),
            lock("b", "y", "z", 5),
            lock("c", "x", "x", 5),
        ];
        assert_eq!(deadlocks(20_000, &locks.into()), []);
    }
}
