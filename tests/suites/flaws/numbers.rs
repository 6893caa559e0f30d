//! Counts and permits that are sent twice or late.

use distlock_tests::faults::{Fault, Op};
use tokio::time::sleep;

use super::stage::{KEY, SECOND, Stage};

pub(super) async fn count_sent_twice_counts_once(stage: &Stage) -> bool {
    let latch = stage.client().count_down_latch(KEY);
    latch.try_set_count(3).await.unwrap();
    stage.faults.next(Op::Adjust, Fault::FailAfter);
    latch.count_down().await.unwrap() == 2
}

pub(super) async fn change_whose_answer_was_lost_is_made_once(stage: &Stage) -> bool {
    let semaphore = stage.client().semaphore(KEY);
    stage.faults.next(Op::Adjust, Fault::FailAfter);
    semaphore.add_permits(2).await.unwrap() == 2
}

pub(super) async fn attempt_that_comes_after_the_release_takes_no_permit(stage: &Stage) -> bool {
    let semaphore = stage.client().semaphore(KEY);
    semaphore.try_set_permits(1).await.unwrap();
    stage.faults.next(Op::Attempt, Fault::Late(SECOND));
    semaphore.acquire().await.unwrap().release().await.unwrap();
    sleep(2 * SECOND).await;
    semaphore.available_permits().await.unwrap() == 1
}

pub(super) async fn permit_whose_release_is_sent_twice_is_one_permit(stage: &Stage) -> bool {
    let semaphore = stage.client().semaphore(KEY);
    semaphore.try_set_permits(1).await.unwrap();
    let permit = semaphore.try_acquire().await.unwrap().unwrap();
    stage.faults.next(Op::Release, Fault::FailAfter);
    permit.release().await.unwrap();
    semaphore.available_permits().await.unwrap() == 1
}
