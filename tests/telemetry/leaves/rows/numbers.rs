//! Semaphores and latches as numbers.

use std::time::Duration;

use distlock_tests::LockKind;
use tokio::time::sleep;

use super::Row;
use crate::play::SOON;

/// One row for each method, on a number that is set before.
macro_rules! of {
    ($rows:ident, $kind:ident, $make:ident, $set:ident, $number:ident => $($item:literal: $does:expr,)*) => {$(
        $rows.push(
            Row::new(&[$item], LockKind::$kind, |play| async move {
                let $number = play.client().$make(&play.key);
                $number.$set(2).await.unwrap();
                async move { drop($does.await) }
            })
            .changes_a_number(),
        );
    )*};
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    of! { rows, Semaphore, semaphore, try_set_permits, semaphore =>
        "Semaphore::add_permits": semaphore.add_permits(1),
        "Semaphore::available_permits": semaphore.available_permits(),
        "Semaphore::delete": semaphore.delete(),
        "Semaphore::drain_permits": semaphore.drain_permits(),
        "Semaphore::release_permits": semaphore.release_permits(1),
        "Semaphore::try_set_permits": semaphore.try_set_permits(1),
    }
    of! { rows, Permit, expirable_semaphore, try_set_permits, semaphore =>
        "ExpirableSemaphore::acquired_permits": semaphore.acquired_permits(),
        "ExpirableSemaphore::add_permits": semaphore.add_permits(1),
        "ExpirableSemaphore::available_permits": semaphore.available_permits(),
        "ExpirableSemaphore::delete": semaphore.delete(),
        "ExpirableSemaphore::permits": semaphore.permits(),
        "ExpirableSemaphore::set_permits": semaphore.set_permits(3),
        "ExpirableSemaphore::try_set_permits": semaphore.try_set_permits(1),
    }
    of! { rows, Latch, count_down_latch, try_set_count, latch =>
        "CountDownLatch::count": latch.count(),
        "CountDownLatch::count_down": latch.count_down(),
        "CountDownLatch::delete": latch.delete(),
        "CountDownLatch::try_set_count": latch.try_set_count(3),
    }
    permit_ids(&mut rows);
    rows.push(latch_wait());
    rows
}

/// A permit whose id is all that is left of it.
fn permit_ids(rows: &mut Vec<Row>) {
    macro_rules! of_id {
        ($semaphore:ident, $id:ident => $($item:literal: $does:expr,)*) => {$(
            rows.push(
                Row::new(&[$item], LockKind::Permit, |play| async move {
                    let $semaphore = play.client().expirable_semaphore(&play.key);
                    $semaphore.try_set_permits(2).await.unwrap();
                    let permit = $semaphore.acquire().lease(SOON).await.unwrap();
                    let $id = permit.into_id().unwrap();
                    async move { drop($does.await) }
                })
                .changes_a_number(),
            );
        )*};
    }
    of_id! { semaphore, id =>
        "ExpirableSemaphore::release": semaphore.release(id),
        "ExpirableSemaphore::update_lease": semaphore.update_lease(id, SOON),
        "ExpirableSemaphore::remaining_lease": semaphore.remaining_lease(id),
    }
}

/// Somebody else opens the latch a little later.
fn latch_wait() -> Row {
    let items = &["LatchWait", "Waiting", "LatchWait::into_future"];
    let row = Row::new(items, LockKind::Latch, |play| async move {
        let (latch, other) = (
            play.client().count_down_latch(&play.key),
            play.other().count_down_latch(&play.key),
        );
        latch.try_set_count(1).await.unwrap();
        tokio::spawn(async move {
            sleep(Duration::from_millis(10)).await;
            other.count_down().await
        });
        async move { drop(latch.wait().timeout(SOON).await) }
    });
    row.changes_a_number()
}
