//! A hot key beside another library, whose waiters wake slowly and release each of their grants in the server. On paused time,
//! where the shares are exact.

use std::cell::Cell;
use std::time::Duration;

use distlock::kinds::LockKind;
use distlock::test_util::{Answer, Kind, Verbs};
use distlock::{Client, Lock, MemoryServer};
use distlock_tests::size;
use futures_util::future::{join, join_all};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

const KEY: &str = "order:42";
const LEASE: Duration = Duration::from_secs(30);
const SECTION: Duration = Duration::from_millis(1);

/// How long the other library takes from a message to its attempt.
const WAKE_UP: Duration = Duration::from_millis(2);

/// How long the clients take turns.
fn run() -> Duration {
    Duration::from_secs(size(4, 10))
}

fn client(server: &MemoryServer) -> Client {
    Client::builder().in_memory(server).unwrap()
}

async fn section() {
    sleep(SECTION).await;
}

/// The tasks of a client that is busy.
const TASKS: usize = 8;

/// Enters the section in so many tasks until the run is over, and returns the number of grants.
async fn ours(client: &Client, tasks: usize) -> u32 {
    enters(&client.lock(KEY), tasks).await
}

async fn enters<K: LockKind>(lock: &Lock<K>, tasks: usize) -> u32 {
    let (start, grants) = (Instant::now(), Cell::new(0));
    let task = async || {
        while start.elapsed() < run() {
            lock.acquire().run(section()).await.unwrap();
            grants.set(grants.get() + 1);
        }
    };
    join_all((0..tasks).map(|_| task())).await;
    grants.get()
}

/// Does the same as the threads of another library, which wake one after the other.
async fn theirs(client: &Client) -> u32 {
    their(client, Kind::Reentrant).await
}

async fn their(client: &Client, kind: Kind) -> u32 {
    let verbs = Verbs::new(client, Uuid::new_v4()).of_kind(kind);
    let subscription = verbs.subscribe(KEY).unwrap();
    let mut messages = subscription.signal();
    let (start, mut grants) = (Instant::now(), 0);
    while start.elapsed() < run() {
        messages.mark_unchanged();
        let owner = u64::from(grants) + 1;
        if verbs.attempt(KEY, owner, LEASE).await.unwrap() == Answer::Granted {
            section().await;
            verbs.release(KEY, owner).await.unwrap();
            grants += 1;
        } else {
            messages.changed().await;
        }
        sleep(WAKE_UP).await;
    }
    grants
}

#[tokio::test(start_paused = true)]
async fn library_that_wakes_slowly_gets_its_share_of_a_hot_key() {
    let server = MemoryServer::new();
    let (one, other) = (client(&server), client(&server));
    let (ours, theirs) = tokio::join!(ours(&one, TASKS), theirs(&other));
    let share = f64::from(theirs) / f64::from(ours + theirs);
    assert!(
        (0.3..0.7).contains(&share),
        "{ours} of ours, {theirs} of theirs"
    );
}

#[tokio::test(start_paused = true)]
async fn library_that_wakes_slowly_gets_its_turns_at_a_hot_write_lock() {
    for (kind, least) in [(Kind::Write, 0.3), (Kind::Read, 0.05)] {
        let server = MemoryServer::new();
        let (one, other) = (client(&server), client(&server));
        let lock = one.rw_lock(KEY).write();
        let (ours, theirs) = tokio::join!(enters(&lock, TASKS), their(&other, kind));
        let share = f64::from(theirs) / f64::from(ours + theirs);
        assert!(
            (least..0.7).contains(&share),
            "{kind}: {ours} of ours, {theirs} of theirs"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn library_that_wakes_slowly_gets_its_share_beside_two_clients_of_this_crate() {
    let server = MemoryServer::new();
    let (one, other, third) = (client(&server), client(&server), client(&server));
    let (one, other, theirs) = tokio::join!(ours(&one, TASKS), ours(&other, TASKS), theirs(&third));
    let share = f64::from(theirs) / f64::from(one + other + theirs);
    assert!(
        (0.2..0.5).contains(&share),
        "{one} and {other} of ours, {theirs} of theirs"
    );
}

/// Processes with one task each: none of them has several grants in a row to give away.
#[tokio::test(start_paused = true)]
async fn clients_with_one_task_each_have_the_same_share_as_those_of_a_library_that_wakes_slowly() {
    for (of_ours, of_theirs) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let server = MemoryServer::new();
        let clients: Vec<Client> = (0..of_ours + of_theirs).map(|_| client(&server)).collect();
        let (one, other) = clients.split_at(of_ours);
        let all = join(
            join_all(one.iter().map(|client| ours(client, 1))),
            join_all(other.iter().map(theirs)),
        );
        let (one, other) = all.await;
        let foreign: u32 = other.iter().sum();
        let fair = (one.iter().sum::<u32>() + foreign) / clients.len() as u32;
        // The other library has no turns between its own clients.
        assert!(
            one.iter().all(|mine| *mine >= fair / 2) && foreign >= fair * of_theirs as u32 / 2,
            "{one:?} of ours, {other:?} of theirs"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn listener_that_never_takes_the_key_costs_little() {
    let server = MemoryServer::new();
    let alone = ours(&client(&server), TASKS).await;
    let other = client(&server);
    let _listens = Verbs::new(&other, Uuid::new_v4()).subscribe(KEY).unwrap();
    // Three runs: how many turns end with a pause is left to chance.
    let mut beside = 0;
    for _ in 0..3 {
        beside += ours(&client(&server), TASKS).await;
    }
    let beside = beside / 3;
    assert!(
        beside >= alone / 100 * 93,
        "{beside} grants, and {alone} alone"
    );
}

#[tokio::test(start_paused = true)]
async fn readers_and_writers_of_this_crate_leave_a_hot_key_idle_for_no_time() {
    let server = MemoryServer::new();
    let lock = |client: &Client| client.rw_lock(KEY);
    let alone = enters(&lock(&client(&server)).write(), TASKS).await;
    let clients = [client(&server), client(&server), client(&server)];
    let [one, other, third] = clients.each_ref().map(lock);
    let [one, other] = [one, other].map(|lock| lock.write());
    let third = third.read();
    let (one, other, reads) = tokio::join!(
        enters(&one, TASKS),
        enters(&other, TASKS),
        enters(&third, 1)
    );
    assert!(
        one + other + reads >= alone / 100 * 80,
        "{one} and {other} writes and {reads} reads, and {alone} writes alone"
    );
}

#[tokio::test(start_paused = true)]
async fn two_clients_of_this_crate_leave_the_key_idle_for_no_time() {
    let server = MemoryServer::new();
    let alone = ours(&client(&server), TASKS).await;
    let (one, other) = (client(&server), client(&server));
    let (one, other) = tokio::join!(ours(&one, TASKS), ours(&other, TASKS));
    assert!(
        one + other >= alone / 100 * 97,
        "{one} and {other} grants, and {alone} alone"
    );
    assert!(
        one.min(other) >= one.max(other) / 2,
        "{one} and {other} grants"
    );
}
