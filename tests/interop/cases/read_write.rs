//! Readers and writers of both sides.

use std::time::Duration;

use distlock_interop::{Call, Kind};
use tokio::time::sleep;

use crate::case::{Case, cases};
use crate::stage::{SHORT, Stage, assert_soon};
use crate::table::Row;

async fn readers_share_and_writer_waits_for_both(stage: Stage) {
    let (read, write) = (stage.as_kind(Kind::Read), stage.as_kind(Kind::Write));
    let (one, other) = (stage.holder("one").await, stage.waiter("other").await);
    one.take(&read).await;
    other.take(&read).await;
    for (side, first, last) in [
        (stage.waiter("w").await, &one, &other),
        (stage.holder("w").await, &other, &one),
    ] {
        assert!(side.try_take(&write).await.is_none(), "written while read");
        let writing = side.acquire(&write, None);
        stage.until_asleep(&side, &write).await;
        first.release(&read).value::<bool>().await;
        assert!(
            side.peer()
                .actor(format!("{} t", stage.name))
                .try_take(&write)
                .await
                .is_none()
        );
        assert!(!writing.is_answered(), "written while read");
        let released = last.release(&read).timed::<bool>().await;
        let granted = writing.granted().await;
        assert_soon("the wake-up", released.began, granted.ended);
        // Both readers wait for the writer.
        assert!(one.try_take(&read).await.is_none(), "read while written");
        let reading = [one.acquire(&read, None), other.acquire(&read, None)];
        for reader in [&one, &other] {
            stage.until_asleep(reader, &read).await;
        }
        let released = side.release(&write).timed::<bool>().await;
        for reading in reading {
            let granted = reading.granted().await;
            assert_soon("the wake-up", released.began, granted.ended);
        }
    }
}

async fn downgraded_writer_lets_readers_in_and_no_writer(stage: Stage) {
    let (read, write) = (stage.as_kind(Kind::Read), stage.as_kind(Kind::Write));
    let (holder, waiter) = (stage.holder("h").await, stage.waiter("w").await);
    holder.take(&write).await;
    holder.take(&read).await;
    // Redisson publishes nothing.
    let (released, granted) = stage.hand_over((&holder, &write), (&waiter, &read)).await;
    assert_soon("the grant", released, granted);
    let writer = stage.waiter("writer").await;
    assert!(
        writer.try_take(&write).await.is_none(),
        "written while read"
    );
    waiter.release(&read).value::<bool>().await;
    assert!(
        writer.try_take(&write).await.is_none(),
        "written while read"
    );
    holder.release(&read).value::<bool>().await;
    writer.take(&write).await;
    writer.release(&write).value::<bool>().await;
}

async fn lease_of_a_reader_is_only_its_own(stage: Stage) {
    const LEASE: u64 = 1_000;
    let (read, write) = (stage.as_kind(Kind::Read), stage.as_kind(Kind::Write));
    let (leased, other) = (stage.holder("leased").await, stage.waiter("other").await);
    other.take(&read).await;
    leased
        .call(Call::new("acquire", read.0, &read.1).wait(0).lease(LEASE))
        .granted()
        .await;
    // The time itself is the subject: for so long the writer must not be granted it.
    sleep(Duration::from_millis(2 * LEASE)).await;
    for side in [stage.holder("w").await, stage.waiter("w").await] {
        assert!(side.try_take(&write).await.is_none(), "written while read");
    }
    let writer = stage.waiter("w").await;
    stage
        .release_wakes((&other, &read), (&writer, &write))
        .await;
    writer.release(&write).value::<bool>().await;
}

async fn dead_reader_frees_nothing_and_blocks_nobody(stage: Stage) {
    let (read, write) = (stage.as_kind(Kind::Read), stage.as_kind(Kind::Write));
    let other = stage.waiter("other").await;
    let mortal = stage.mortal().await;
    mortal.actor("dead").take(&read).await;
    other.take(&read).await;
    mortal.kill();
    // The time itself is the subject: the lease of the dead reader ends, and the other one stays.
    sleep(Duration::from_millis(SHORT + SHORT / 2)).await;
    let writer = stage.holder("w").await;
    assert!(
        writer.try_take(&write).await.is_none(),
        "written while read"
    );
    stage
        .release_wakes((&other, &read), (&writer, &write))
        .await;
    writer.release(&write).value::<bool>().await;
}

pub(super) fn cases() -> Vec<Case> {
    cases![Row::ReadWrite, Kind::Write;
        readers_share_and_writer_waits_for_both,
        downgraded_writer_lets_readers_in_and_no_writer,
        lease_of_a_reader_is_only_its_own,
        dead_reader_frees_nothing_and_blocks_nobody,
    ]
}
