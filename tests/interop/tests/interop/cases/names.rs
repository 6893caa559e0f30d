//! Names with braces, blanks and other letters, from which both sides have to derive the same further names.

use distlock_interop::{Call, Kind};
use futures_util::future::join_all;

use crate::case::{Case, cases};
use crate::stage::{Stage, assert_by_message};
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
    let lock = stage.named(&format!(
        "{name} {} {direction} {version:?}",
        stage.kind.name()
    ));
    let (holder, waiter) = (stage.holder(name).await, stage.waiter(name).await);
    if matches!(lock.0, Kind::Semaphore | Kind::Permit) {
        assert!(
            holder.count::<bool>("set_permits", &lock, 1).await,
            "{name:?} was there"
        );
    }
    if lock.0 == Kind::Latch {
        assert!(
            holder.count::<bool>("set_count", &lock, 1).await,
            "{name:?} was there"
        );
        let waiting = waiter.call(Call::new("await", lock.0, &lock.1));
        stage.until_somebody_waits(&lock).await;
        assert!(holder.ask::<bool>("count_down", &lock).await);
        assert!(waiting.value::<bool>().await);
        return;
    }
    let held = holder.take(&lock).await;
    assert!(
        waiter.try_take(&lock).await.is_none(),
        "{name:?} is held twice"
    );
    let waiting = waiter.acquire(&lock, None);
    stage.until_somebody_waits(&lock).await;
    let released = holder.give_back(&lock, held.permit);
    let released = released.timed::<bool>().await;
    let granted = waiting.granted().await;
    assert_by_message(name, released.began, granted.ended);
    let released = waiter.give_back(&lock, granted.value.permit);
    released.value::<bool>().await;
}

pub(super) fn cases() -> Vec<Case> {
    let others = [Kind::Multi, Kind::Semaphore, Kind::Permit, Kind::Latch];
    let kinds = Kind::EXCLUSIVE.into_iter().chain(others);
    let each = kinds
        .flat_map(|kind| cases![Row::Names, kind; odd_names_are_contended_and_waiters_are_woken]);
    each.collect()
}
