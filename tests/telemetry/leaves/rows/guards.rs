//! What a guard and a section can be asked to do.

use std::pin::pin;
use std::time::Duration;

use distlock::{Error, Guard, current};
use distlock_tests::{AnyLock, LockKind};
use futures_util::{StreamExt as _, stream};

use super::{Row, body, fallible_body};
use crate::play::SOON;

/// Ends by itself, and so soon that a future of it can wait for that.
const SHORT: Duration = Duration::from_millis(50);

const KINDS: [LockKind; 8] = [
    LockKind::Reentrant,
    LockKind::Fair,
    LockKind::Write,
    LockKind::Read,
    LockKind::Permit,
    LockKind::Semaphore,
    LockKind::Multi,
    LockKind::Red,
];

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for kind in KINDS {
        rows.push(release(kind));
        if kind != LockKind::Semaphore {
            rows.push(of_guard(&["Guard::extend"], kind, async |guard| {
                drop(guard.extend(SOON).await);
            }));
        }
        rows.push(of_guard(&["Guard::scope", "Scope"], kind, async |guard| {
            drop(guard.scope(body()).await);
        }));
        rows.push(of_guard(
            &["Guard::try_scope", "TryScope"],
            kind,
            async |guard| {
                drop(guard.try_scope(fallible_body()).await);
            },
        ));
        rows.push(of_guard(
            &["Guard::hold_stream", "HoldStream"],
            kind,
            async |guard| {
                let items = stream::iter([1, 2]).then(async |_| body().await);
                let mut items = pin!(guard.hold_stream(items));
                while items.next().await.is_some() {}
            },
        ));
    }
    of_their_own(&mut rows);
    losses(&mut rows);
    rows
}

/// Something is done with a guard for which others wait.
fn of_guard(
    items: &'static [&'static str],
    kind: LockKind,
    does: impl AsyncFn(Guard) + Copy + 'static,
) -> Row {
    Row::new(items, kind, move |play| async move {
        let guard = play.held().await;
        play.rivals(Duration::ZERO);
        async move { does(guard).await }
    })
}

fn release(kind: LockKind) -> Row {
    Row::new(&["Guard::release"], kind, move |play| async move {
        let guard = play.held().await;
        // Several may be inside of the others at once.
        if kind.capacity() == 1 {
            play.with_rivals().await;
        }
        async move { drop(guard.release().await) }
    })
}

/// The guards that are no `Guard`.
fn of_their_own(rows: &mut Vec<Row>) {
    macro_rules! of {
        ($kind:ident, $permit:ident => $($item:literal: $does:expr,)*) => {$(
            rows.push(Row::new(&[$item], LockKind::$kind, |play| async move {
                let AnyLock::$kind(lock) = play.lock() else { unreachable!() };
                let $permit = lock.acquire().await.unwrap();
                play.rivals(Duration::ZERO);
                async move { $does }
            }));
        )*};
    }
    of! { Fenced, guard =>
        "FencedGuard::release": drop(guard.release().await),
        "FencedGuard::hold_stream": drop(pin!(guard.hold_stream(stream::once(body()))).next().await),
    }
    of! { Semaphore, permit =>
        "Permit::release": drop(permit.release().await),
    }
    of! { Permit, permit =>
        "ExpirablePermit::release": drop(permit.release().await),
        "ExpirablePermit::extend": drop(permit.extend(SOON).await),
        "ExpirablePermit::scope": drop(permit.scope(body()).await),
        "ExpirablePermit::try_scope": drop(permit.try_scope(fallible_body()).await),
        "ExpirablePermit::hold_stream": drop(pin!(permit.hold_stream(stream::once(body()))).next().await),
        "ExpirablePermit::lost": {
            let lost = permit.lost();
            drop(tokio::time::timeout(SHORT, lost).await);
            drop(Guard::from(permit));
        },
    }
}

/// A lease of its own ends while somebody waits for that.
fn losses(rows: &mut Vec<Row>) {
    rows.push(short(&["Guard::lost"], async |guard| guard.lost().await));
    rows.push(short(&["Section::lost"], async |guard| {
        let section = guard.section();
        section.lost().await;
    }));
    rows.push(short(&["Current::lost"], async |guard| {
        let key = guard.key().to_owned();
        let inside = async {
            let lost = current(&key).unwrap().lost();
            lost.await;
            Ok::<(), Error>(())
        };
        drop(guard.scope(inside).await);
    }));
}

fn short(items: &'static [&'static str], does: impl AsyncFn(Guard) + Copy + 'static) -> Row {
    Row::new(items, LockKind::Reentrant, move |play| async move {
        let acquire = play.client().lock(&play.key).acquire();
        let guard = acquire.lease(SHORT).await.unwrap();
        play.rivals(Duration::ZERO);
        async move { does(guard).await }
    })
}
