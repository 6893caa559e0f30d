//! Acquisitions, and looks at locks.

use std::time::Duration;

use distlock::{Client, Error, inherit, with_client};
use distlock_tests::{AnyLock, LockKind};

use super::{Row, WORLDS, World, body, fallible_body};
use crate::calls;
use crate::play::PATIENCE;

const HOUR: Duration = Duration::from_secs(3600);

/// Once for each lock that has a method of its own.
macro_rules! of_each {
    ($rows:ident, $world:ident, $lock:ident => $future:expr; $($kind:ident: $items:expr,)*) => {$(
        $rows.push(
            Row::new($items, LockKind::$kind, |play| async move {
                let AnyLock::$kind($lock) = play.lock() else { unreachable!() };
                async move { drop($future.await) }
            })
            .world($world),
        );
    )*};
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for world in WORLDS {
        acquire(&mut rows, world);
        try_acquire(&mut rows, world);
        run(&mut rows, world);
        look(&mut rows, world);
    }
    around(&mut rows);
    rows
}

fn acquire(rows: &mut Vec<Row>, world: World) {
    for kind in LockKind::ON_ONE_SERVER.into_iter().chain([LockKind::Red]) {
        for lease in [None, Some(HOUR)] {
            if lease.is_some() && !kind.has_lease() {
                continue;
            }
            let items = &["Acquire", "Acquiring", "Acquire::into_future"];
            let row = Row::new(items, kind, move |play| async move {
                let lock = play.lock();
                async move { drop(lock.acquire(Some(PATIENCE), lease).await) }
            });
            let row = row.world(world);
            rows.push(match lease {
                None => row,
                Some(lease) => row.also(format!("for {lease:?}")),
            });
        }
    }
}

fn try_acquire(rows: &mut Vec<Row>, world: World) {
    of_each! { rows, world, lock => lock.try_acquire();
        Reentrant: &["Lock::try_acquire"],
        Spin: &["Lock::try_acquire"],
        Fenced: &["Lock::try_acquire"],
        Fair: &["Lock::try_acquire"],
        Read: &["Lock::try_acquire"],
        Write: &["Lock::try_acquire"],
        Permit: &["ExpirableSemaphore::try_acquire"],
        Semaphore: &["Semaphore::try_acquire"],
        Multi: &["MultiLock::try_acquire"],
        Red: &["RedLock::try_acquire"],
    }
    of_each! { rows, world, lock => lock.try_acquire_many(2);
        Permit: &["ExpirableSemaphore::try_acquire_many"],
        Semaphore: &["Semaphore::try_acquire_many"],
    }
}

fn run(rows: &mut Vec<Row>, world: World) {
    of_each! { rows, world, lock => lock.acquire().wait(PATIENCE).run(body());
        Reentrant: &["Acquire::run", "Run"],
        Fair: &["Acquire::run", "Run"],
        Read: &["Acquire::run", "Run"],
        Semaphore: &["Acquire::run", "Run"],
        Permit: &["Acquire::run", "Run"],
        Multi: &["Acquire::run", "Run"],
        Red: &["Acquire::run", "Run"],
    }
    of_each! { rows, world, lock => lock.acquire().wait(PATIENCE).try_run(fallible_body());
        Reentrant: &["Acquire::try_run", "TryRun"],
        Red: &["Acquire::try_run", "TryRun"],
    }
    for fallible in [false, true] {
        rows.push(on_lost(fallible).world(world));
    }
}

/// The hold is lost while the body runs, which its end finds out.
fn on_lost(fallible: bool) -> Row {
    let items: &[&str] = match fallible {
        false => &["OnLost::run"],
        true => &["OnLost::try_run"],
    };
    Row::new(items, LockKind::Reentrant, move |play| async move {
        let lock = play.client().lock(&play.key);
        let thief = play.other().lock(&play.key);
        async move {
            let acquire = lock.acquire().wait(PATIENCE).on_lost(|(), _| {
                calls::call("a function for losses");
                Ok::<(), Error>(())
            });
            let body = async move {
                body().await;
                thief.force_release().await
            };
            let body = async move { drop(body.await) };
            let _told = match fallible {
                false => acquire.run(body).await,
                true => {
                    acquire
                        .try_run(async {
                            body.await;
                            Ok(())
                        })
                        .await
                }
            };
        }
    })
}

fn look(rows: &mut Vec<Row>, world: World) {
    of_each! { rows, world, lock => lock.is_locked();
        Reentrant: &["Lock::is_locked"],
        Multi: &["MultiLock::is_locked"],
        Red: &["RedLock::is_locked"],
    }
    of_each! { rows, world, lock => lock.holders();
        Reentrant: &["Lock::holders"],
        Multi: &["MultiLock::holders"],
        Red: &["RedLock::holders"],
    }
    of_each! { rows, world, lock => lock.remaining_lease();
        Reentrant: &["Lock::remaining_lease"],
        Multi: &["MultiLock::remaining_lease"],
        Red: &["RedLock::remaining_lease"],
    }
    of_each! { rows, world, lock => lock.until_free().wait(PATIENCE);
        Reentrant: &["UntilFree", "UntilFree::into_future"],
    }
    of_each! { rows, world, lock => lock.hold_count();
        Fair: &["Lock::hold_count"],
    }
    if world == World::Free {
        of_each! { rows, world, lock => lock.force_release();
            Reentrant: &["Lock::force_release"],
            Fair: &["Lock::force_release"],
            Multi: &["MultiLock::force_release"],
            Red: &["RedLock::force_release"],
        }
        rows.push(Row::new(
            &["RwLock::is_locked"],
            LockKind::Write,
            |play| async move {
                let lock = play.client().rw_lock(&play.key);
                async move { drop(lock.is_locked().await) }
            },
        ));
        rows.push(Row::new(
            &["RwLock::force_release"],
            LockKind::Write,
            |play| async move {
                let lock = play.client().rw_lock(&play.key);
                async move { drop(lock.force_release().await) }
            },
        ));
    }
}

/// Futures around others.
fn around(rows: &mut Vec<Row>) {
    rows.push(Row::new(
        &["inherit", "Inherit"],
        LockKind::Reentrant,
        |play| async move {
            let lock = play.client().lock(&play.key);
            let nested = play.client().lock(&play.key);
            let inner = move || inherit(async move { drop(nested.acquire().run(body()).await) });
            let outer = async move { inner().await };
            async move { drop(lock.acquire().run(outer).await) }
        },
    ));
    rows.push(Row::new(
        &["with_client", "WithClient"],
        LockKind::Reentrant,
        |play| async move {
            let (client, key): (Client, String) = (play.client().clone(), play.key.clone());
            let lock = client.lock(&key);
            async move {
                let section = async move { drop(lock.acquire().run(body()).await) };
                with_client(client, section).await;
            }
        },
    ));
}
