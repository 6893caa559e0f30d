//! Numbers with an end: what Redisson sees of it, and what its operations do to it.

use std::time::Duration;

use distlock_interop::{Actor, Call, Kind};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::case::{Case, cases};
use crate::stage::{Lock, Stage};
use crate::table::Row;

/// What distlock sets, in milliseconds: far longer than a case takes.
const LIFE: u64 = 3_600_000;

/// An earlier end, which a use by distlock moves to the one above.
const EARLY: u64 = 1_800_000;

/// A number of both sides.
struct Number {
    lock: Lock,
    rust: Actor,
    java: Actor,
}

impl Number {
    /// The cases are for both directions, in which Rust is the holder's side.
    async fn of(stage: &Stage) -> Self {
        let (lock, rust, java) = stage.parts().await;
        assert!(java.peer().side().is_java() && !rust.peer().side().is_java());
        Self { lock, rust, java }
    }

    fn call(&self, op: &str) -> Call {
        Call::new(op, self.lock.0, &self.lock.1)
    }

    /// A use by a handle with a time.
    async fn by_rust<T: DeserializeOwned>(&self, op: &str, count: u32) -> T {
        let call = self.call(op).wait(0).count(count).expire_after(LIFE);
        self.rust.call(call).value().await
    }

    async fn by_java<T: DeserializeOwned>(&self, op: &str, count: u32) -> T {
        let call = self.call(op).wait(0).count(count);
        self.java.call(call).value().await
    }

    async fn java_sets_an_end(&self, after: u64) {
        let set = self.java.call(self.call("expire").expire_after(after));
        assert!(set.value::<bool>().await, "there is no number");
    }

    /// Asserts that Java sees this end, and nothing beyond it.
    async fn ends_after(&self, expected: u64) {
        let left: i64 = self.java.ask("remaining_life", &self.lock).await;
        let least = i64::try_from(expected - 600_000).unwrap();
        let most = i64::try_from(expected).unwrap();
        assert!((least..=most).contains(&left), "{left} of {most} ms");
    }

    async fn has_no_end(&self) {
        let left: i64 = self.java.ask("remaining_life", &self.lock).await;
        assert_eq!(left, -1);
    }

    /// A use by Java leaves the end, and one by distlock moves it.
    async fn is_moved_by_rust_alone<T: DeserializeOwned>(&self, ops: &[&str]) {
        for op in ops {
            self.java_sets_an_end(EARLY).await;
            let _: T = self.by_java(op, 1).await;
            self.ends_after(EARLY).await;
            let _: T = self.by_rust(op, 1).await;
            self.ends_after(LIFE).await;
        }
    }

    /// A use by Java takes the end away, and none by distlock sets it again, until Java does.
    async fn end_is_taken_away_by(&self, op: &str, used: &str) {
        let _: Value = self.by_java(op, 1).await;
        self.has_no_end().await;
        let _: Value = self.by_rust(used, 1).await;
        self.has_no_end().await;
        self.java_sets_an_end(EARLY).await;
        let _: Value = self.by_rust(used, 1).await;
        self.ends_after(LIFE).await;
    }

    async fn ends(&self, stage: &Stage) {
        self.java_sets_an_end(1).await;
        stage.until_gone(&self.lock.1[0]).await;
    }
}

async fn end_of_a_semaphore_is_kept_by_java_and_removed_by_what_sets_the_number(stage: Stage) {
    let number = Number::of(&stage).await;
    assert!(number.by_rust::<bool>("set_permits", 9).await);
    number.ends_after(LIFE).await;
    number
        .is_moved_by_rust_alone::<Value>(&["acquire", "release"])
        .await;
    number.end_is_taken_away_by("add_permits", "acquire").await;
    number.end_is_taken_away_by("drain", "add_permits").await;
    // A permit that Java gives back when the number is gone makes another one, which has no end.
    number.ends(&stage).await;
    let _: Value = number.by_java("release", 1).await;
    assert_eq!(number.by_java::<i64>("available", 1).await, 1);
    number.has_no_end().await;
}

async fn end_of_an_expirable_semaphore_is_kept_by_java_and_removed_by_what_sets_the_number(
    stage: Stage,
) {
    let number = Number::of(&stage).await;
    assert!(number.by_rust::<bool>("set_permits", 9).await);
    number.ends_after(LIFE).await;
    number.is_moved_by_rust_alone::<Value>(&["acquire"]).await;
    number.end_is_taken_away_by("add_permits", "acquire").await;
    number.ends(&stage).await;
    assert_eq!(number.by_java::<i64>("available", 1).await, 0);
    assert!(number.by_java::<bool>("set_permits", 2).await);
    number.has_no_end().await;
}

async fn end_of_a_latch_is_kept_by_java_and_tells_no_thread_that_sleeps(stage: Stage) {
    const WAIT: u64 = 2_000;
    let number = Number::of(&stage).await;
    assert!(number.by_rust::<bool>("set_count", 9).await);
    number.ends_after(LIFE).await;
    number
        .is_moved_by_rust_alone::<Value>(&["count_down"])
        .await;
    assert_eq!(number.by_java::<i64>("count", 1).await, 7);
    let waiting = number.call("await").wait(WAIT);
    let sleeper = stage.waiter("sleeps").await;
    let waiting = sleeper.call(waiting);
    stage.until_asleep(&sleeper, &number.lock).await;
    number.ends(&stage).await;
    let woken = waiting.timed::<bool>().await;
    let slept = Duration::from_nanos(woken.ended - woken.began);
    assert!(
        slept.as_millis() + 5 >= WAIT.into(),
        "woken after {slept:?}"
    );
    // For a thread that comes later the latch is open, and a count-down makes no number.
    assert!(number.by_java::<bool>("await", 1).await);
    let _: Value = number.by_java("count_down", 1).await;
    let left: i64 = number.java.ask("remaining_life", &number.lock).await;
    assert_eq!(left, -2);
}

pub(super) fn cases() -> Vec<Case> {
    let cases = [
        cases![Row::Semaphore, Kind::Semaphore; end_of_a_semaphore_is_kept_by_java_and_removed_by_what_sets_the_number],
        cases![Row::Permit, Kind::Permit; end_of_an_expirable_semaphore_is_kept_by_java_and_removed_by_what_sets_the_number],
        cases![Row::Latch, Kind::Latch; end_of_a_latch_is_kept_by_java_and_tells_no_thread_that_sleeps],
    ];
    cases.into_iter().flatten().map(Case::symmetrical).collect()
}
