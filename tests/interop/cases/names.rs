//! Names with braces, blanks and other letters, from which both sides have to derive the same further names.

use distlock_interop::{Actor, Call, Kind};
use futures_util::future::join_all;

use crate::case::{Case, cases};
use crate::stage::{Lock, Stage};
use crate::table::Row;

const NAMES: [&str; 9] = [
    "a{b}c",
    "{a}{b}",
    "a{b{c}}",
    "a{}b",
    "a}b",
    "замок-鍵-🔑",
    " two  words ",
    "\"quo'tes\"\\",
    "a:b/c?d=e#f%20",
];

/// Waiters for fair locks and for write locks that hear nothing ask again after 1.6 s, and others later. In nanoseconds.
const BY_MESSAGE: u64 = 1_000_000_000;

/// A busy machine may be late now and then. Without a message every wake-up is late.
const TRIES: usize = 4;

/// Longer than a hand-over needs, in milliseconds.
const LEASE_OF_A_PERMIT: u64 = 500;

async fn odd_names_are_contended_and_waiters_are_woken(stage: Stage) {
    join_all(NAMES.map(|name| contend(&stage, name))).await;
}

async fn contend(stage: &Stage, name: &str) {
    let direction = if stage.holder.is_java() {
        "java"
    } else {
        "rust"
    };
    let version = [stage.holder, stage.waiter]
        .into_iter()
        .find(|side| side.is_java());
    let kind = stage.kind;
    let lock = stage.named(&format!("{name} {} {direction} {version:?}", kind.name()));
    let named = Named {
        stage,
        lock,
        holder: stage.holder(name).await,
        waiter: stage.waiter(name).await,
    };
    if matches!(kind, Kind::Semaphore | Kind::Permit) {
        named.set("set_permits").await;
    }
    if kind == Kind::Read {
        return named.read_together().await;
    }
    named.is_woken().await;
    if kind == Kind::Permit {
        named.end_of_a_lease_returns_the_permit().await;
    }
}

/// An object with an odd name, and a thread of each side.
struct Named<'a> {
    stage: &'a Stage,
    lock: Lock,
    holder: Actor,
    waiter: Actor,
}

impl Named<'_> {
    async fn set(&self, op: &str) {
        let is_set = self.holder.count::<bool>(op, &self.lock, 1).await;
        assert!(is_set, "{:?} was there", self.lock);
    }

    /// Whether a message wakes the waiter.
    async fn is_woken(&self) {
        let mut late = 0;
        for _ in 0..TRIES {
            late = match self.lock.0 {
                Kind::Latch => self.open().await,
                _ => self.hand_over().await,
            };
            if late < BY_MESSAGE {
                return;
            }
            self.stage.until_nobody_waits(&self.lock).await;
        }
        panic!(
            "{:?}: woken {late} ns late, {TRIES} times one after the other",
            self.lock
        );
    }

    /// How long it takes in nanoseconds, from the count-down to the end of the wait.
    async fn open(&self) -> u64 {
        let lock = &self.lock;
        self.set("set_count").await;
        let waiting = self.waiter.call(Call::new("await", lock.0, &lock.1));
        self.stage.until_asleep(&self.waiter, lock).await;
        let counted = self.holder.call(Call::new("count_down", lock.0, &lock.1));
        let counted = counted.timed::<bool>().await;
        let opened = waiting.timed::<bool>().await;
        assert!(opened.value, "{lock:?} is above 0");
        opened.ended.saturating_sub(counted.began)
    }

    /// How long it takes in nanoseconds, from the release to the grant.
    async fn hand_over(&self) -> u64 {
        let (lock, waiter) = (&self.lock, &self.waiter);
        let held = self.holder.take(lock).await;
        assert!(
            waiter.try_take(lock).await.is_none(),
            "{lock:?} is held twice"
        );
        let waiting = waiter.acquire(lock, None);
        self.stage.until_asleep(waiter, lock).await;
        let released = self.holder.give_back(lock, held.permit);
        let released = released.timed::<bool>().await;
        let granted = waiting.granted().await;
        let tokens = (held.token, granted.value.token);
        assert!(
            tokens.1 > tokens.0 || tokens.0.is_none(),
            "{lock:?}: tokens {tokens:?}"
        );
        let given_back = waiter.give_back(lock, granted.value.permit);
        given_back.value::<bool>().await;
        granted.ended.saturating_sub(released.began)
    }

    /// The permits have a further key, which the other side reads when a lease ends.
    async fn end_of_a_lease_returns_the_permit(&self) {
        let (lock, waiter) = (&self.lock, &self.waiter);
        let acquire = Call::new("acquire", lock.0, &lock.1).wait(0);
        let acquire = acquire.lease(LEASE_OF_A_PERMIT);
        self.holder.call(acquire).granted().await;
        let granted = waiter.acquire(lock, None).granted().await;
        let given_back = waiter.give_back(lock, granted.value.permit);
        given_back.value::<bool>().await;
    }

    /// Each reader has further keys. The release of one looks at those of the others, and ends the holds without them.
    async fn read_together(&self) {
        let (read, write) = (&self.lock, (Kind::Write, self.lock.1.clone()));
        self.holder.take(read).await;
        self.waiter.take(read).await;
        self.waiter.release(read).value::<bool>().await;
        assert!(
            self.waiter.try_take(&write).await.is_none(),
            "{write:?} is written while it is read"
        );
        self.holder.release(read).value::<bool>().await;
        self.waiter.take(&write).await;
        self.waiter.release(&write).value::<bool>().await;
    }
}

pub(super) fn cases() -> Vec<Case> {
    let others = [
        Kind::Read,
        Kind::Multi,
        Kind::Semaphore,
        Kind::Permit,
        Kind::Latch,
    ];
    let kinds = Kind::EXCLUSIVE.into_iter().chain(others);
    let each = kinds
        .flat_map(|kind| cases![Row::Names, kind; odd_names_are_contended_and_waiters_are_woken]);
    each.collect()
}
