//! Each public type and each asynchronous function of `distlock` keeps its auto traits: `Send`, `Sync`, `Unpin` and unwind safety.
//!
//! The text of the API leaves them out. Here it is read for the names: a type or a function that this file does not have fails
//! the test.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use distlock::{
    Acquire, Acquiring, BlockedBy, Blocker, Builder, Client, ClientReport, CountDownLatch,
    Credentials, Current, DetachedHold, Error, ExpirablePermit, ExpirableSemaphore, FencedGuard,
    ForceRelease, Guard, Health, HeldBy, HoldSnapshot, HoldStream, Holder, HolderReport, Inherit,
    Installed, KeyReport, Kind, LatchWait, Leader, LeaderChanges, Lock, LockSource, Loss,
    LossSnapshot, Member, MemoryServer, Mode, MultiLock, OnLost, Owner, Permit, PermitId,
    PermitsReport, Primitive, PrimitiveRights, PubSub, Quorum, RedLock, Replicas, Run, RwLock,
    Scan, Scope, Section, Semaphore, ServerFacts, ServerLayout, SettingWord, Settings, Snapshot,
    TryRun, TryScope, UnknownFact, UntilFree, WaitSnapshot, WaiterReport, Waiting, WithClient,
    kinds, testing,
};

/// The text that `.ci/run api` compares with the code.
const TEXT: &str = include_str!("../gates/checks/api/distlock.txt");

/// Checks each type, and returns what it is called.
macro_rules! all {
    ($check:ident: $($ty:ty),+ $(,)?) => {{
        $($check::<$ty>();)+
        [$(stringify!($ty)),+]
    }};
}

/// Checks each future, and returns the names of the functions.
macro_rules! sent {
    ($($name:literal: $future:expr),+ $(,)?) => {{
        $(is_send(&$future);)+
        [$($name),+]
    }};
}

fn is_send<T: Send>(_: &T) {}

/// `Acquire<G>` is `Acquire`, and `Lock<K>::holders` is `Lock::holders`.
fn without_parameters(name: &str) -> String {
    let mut depth = 0;
    let mut plain = String::new();
    for letter in name.chars() {
        depth += i32::from(letter == '<');
        if depth == 0 {
            plain.push(letter);
        }
        depth -= i32::from(letter == '>');
    }
    plain
}

/// Fails unless `named` are all of the items that the lines with these beginnings name.
fn are_all<'a>(beginnings: &[&str], named: impl IntoIterator<Item = &'a str>) {
    let lines = TEXT
        .lines()
        .map(|line| line.trim_start_matches("#[non_exhaustive] "));
    let items = lines.filter_map(|line| {
        let item = beginnings
            .iter()
            .find_map(|begin| line.strip_prefix(begin))?;
        without_parameters(item)
            .split(['(', ' '])
            .next()
            .map(str::to_owned)
    });
    let items: BTreeSet<String> = items.collect();
    let named: BTreeSet<String> = named.into_iter().map(without_parameters).collect();
    let missing: Vec<_> = items.difference(&named).collect();
    let unknown: Vec<_> = named.difference(&items).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not checked: {missing:?}; not in the text of the API: {unknown:?}"
    );
}

type Body = std::future::Ready<Result<u32, Error>>;
type Items = futures_util::stream::Empty<u32>;
type Told = fn(u32, Error) -> Result<u32, Error>;

#[test]
fn each_public_type_has_its_auto_traits() {
    fn is_value<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe + Debug + 'static>() {}
    let values = all! { is_value:
        Acquire, Acquire<ExpirablePermit>, BlockedBy, Blocker, Builder, Client, ClientReport,
        CountDownLatch, Credentials, Current, DetachedHold, Error, ExpirablePermit,
        ExpirableSemaphore, FencedGuard, ForceRelease, Guard, Health, HeldBy, HoldSnapshot, Holder,
        HolderReport, Installed, KeyReport, Kind, LatchWait, Leader, Lock, LockSource, Loss,
        LossSnapshot, Member, MemoryServer, Mode, MultiLock, Owner, Permit, PermitId,
        PermitsReport, Primitive, PrimitiveRights, PubSub, Quorum, RedLock, Replicas, RwLock, Scan,
        Section, Semaphore, ServerFacts, ServerLayout, SettingWord, Settings, Snapshot,
        UnknownFact, UntilFree, WaitSnapshot, WaiterReport, kinds::Fair, kinds::Fenced,
        kinds::NonReentrant, kinds::NonReentrantFair, kinds::Read, kinds::Reentrant, kinds::Spin,
        kinds::Write, testing::Waiter,
    };
    fn is_future<T: Send + Unpin + UnwindSafe + RefUnwindSafe + Debug + 'static>() {}
    let futures = all! { is_future: Acquiring, Acquiring<FencedGuard>, Waiting, LeaderChanges };
    // Those that contain what a user runs.
    fn is_sent<T: Send + Debug + 'static>() {}
    let around = all! { is_sent:
        HoldStream<Items>, Inherit<Body>, OnLost<Told, Guard>, Run<Body>, Scope<'static, Body>,
        TryRun<Body>, TryScope<'static, Body>, WithClient<Body>,
    };
    let named = values.into_iter().chain(futures).chain(around);
    are_all(&["pub struct distlock::", "pub enum distlock::"], named);
}

#[tokio::test]
async fn each_asynchronous_function_returns_a_future_that_is_send() {
    let server = MemoryServer::new();
    let client = Client::builder().in_memory(&server).unwrap();
    let of_client = sent! {
        "Builder::connect": Client::builder().connect("redis://localhost"),
        "Client::connect": Client::connect("redis://localhost"),
        "Client::close": client.close(Duration::ZERO),
        "Client::inspect": client.inspect("k"),
        "Client::ping": client.ping(),
        "Client::server_facts": client.server_facts(),
        "Client::force_release": client.force_release(&client.inspect("k").await.unwrap()),
        "MemoryServer::until_free": server.until_free("k"),
        "MemoryServer::until_locked": server.until_locked("k"),
        "MemoryServer::until_waiting": server.until_waiting("k", 1),
        "Scan::next_page": client.scan("*").next_page(),
    };
    let (latch, leader) = (client.count_down_latch("latch"), client.leader("leader"));
    let of_others = sent! {
        "CountDownLatch::count": latch.count(),
        "CountDownLatch::count_down": latch.count_down(),
        "CountDownLatch::delete": latch.delete(),
        "CountDownLatch::try_set_count": latch.try_set_count(1),
        "Leader::elected": leader.elected(),
        "Leader::resign": leader.resign(),
        "Leader::who": leader.who(),
    };
    let (lock, several, rw) = (
        client.lock("k"),
        client.multi_lock(["a", "b"]),
        client.rw_lock("rw"),
    );
    let red = Quorum::new([client.clone()]).lock("red");
    let of_locks = sent! {
        "Lock::force_release": lock.force_release(),
        "Lock::hold_count": lock.hold_count(),
        "Lock::holders": lock.holders(),
        "Lock::is_locked": lock.is_locked(),
        "Lock::remaining_lease": lock.remaining_lease(),
        "MultiLock::force_release": several.force_release(),
        "MultiLock::holders": several.holders(),
        "MultiLock::is_locked": several.is_locked(),
        "MultiLock::remaining_lease": several.remaining_lease(),
        "RedLock::force_release": red.force_release(),
        "RedLock::holders": red.holders(),
        "RedLock::is_locked": red.is_locked(),
        "RedLock::remaining_lease": red.remaining_lease(),
        "RwLock::force_release": rw.force_release(),
        "RwLock::is_locked": rw.is_locked(),
    };
    let (pool, seats) = (
        client.semaphore("pool"),
        client.expirable_semaphore("seats"),
    );
    pool.try_set_permits(1).await.unwrap();
    seats.try_set_permits(1).await.unwrap();
    let seat = seats.acquire().await.unwrap();
    let of_semaphores = sent! {
        "ExpirableSemaphore::acquired_permits": seats.acquired_permits(),
        "ExpirableSemaphore::add_permits": seats.add_permits(1),
        "ExpirableSemaphore::available_permits": seats.available_permits(),
        "ExpirableSemaphore::delete": seats.delete(),
        "ExpirableSemaphore::permits": seats.permits(),
        "ExpirableSemaphore::release": seats.release(seat.id()),
        "ExpirableSemaphore::remaining_lease": seats.remaining_lease(seat.id()),
        "ExpirableSemaphore::set_permits": seats.set_permits(1),
        "ExpirableSemaphore::try_set_permits": seats.try_set_permits(1),
        "ExpirableSemaphore::update_lease": seats.update_lease(seat.id(), Duration::ZERO),
        "Semaphore::add_permits": pool.add_permits(1),
        "Semaphore::available_permits": pool.available_permits(),
        "Semaphore::delete": pool.delete(),
        "Semaphore::drain_permits": pool.drain_permits(),
        "Semaphore::release_permits": pool.release_permits(1),
        "Semaphore::try_set_permits": pool.try_set_permits(1),
    };
    let guard = lock.acquire().await.unwrap();
    let leased = client
        .lock("detached")
        .acquire()
        .lease(Duration::from_secs(1));
    let detached = leased.await.unwrap().detach().unwrap();
    let of_guards = sent! {
        "Client::release_detached": client.release_detached(&detached),
        "ExpirablePermit::extend": seat.extend(Duration::ZERO),
        "ExpirablePermit::release": seat.release(),
        "FencedGuard::release": client.fenced_lock("f").acquire().await.unwrap().release(),
        "Guard::extend": guard.extend(Duration::ZERO),
        "Guard::release": guard.release(),
        "Permit::release": pool.acquire().await.unwrap().release(),
    };
    let named = of_client.into_iter().chain(of_others).chain(of_locks);
    are_all(
        &["pub async fn distlock::"],
        named.chain(of_semaphores).chain(of_guards),
    );
}
