//! `eventually`: succeeds when the fact is there, fails with what was seen last.

use std::future::{pending, ready};
use std::time::Duration;

use distlock_tests::{eventually, eventually_eq};
use tokio::time::Instant;

use super::panics;

#[tokio::test(start_paused = true)]
async fn looks_often_at_first_and_until_the_deadline() {
    let start = Instant::now();
    let mut looks = Vec::new();
    eventually(Duration::from_millis(100), "the deadline", || {
        looks.push(start.elapsed().as_millis());
        ready(looks.last() == Some(&100))
    })
    .await;
    assert_eq!(looks, [0, 1, 3, 7, 15, 31, 51, 71, 91, 100]);
}

#[tokio::test(start_paused = true)]
async fn fails_with_what_was_awaited_where_and_seen_last() {
    let mut count = 0;
    let text = panics(async move {
        eventually_eq(Duration::from_millis(2), "the count", 7, || {
            count += 1;
            ready(count)
        })
        .await;
    })
    .await;
    assert!(
        text.starts_with("the count to be 7: not within 2ms, last seen: 3"),
        "{text}"
    );
    assert!(text.contains("waiting.rs"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_look_that_hangs_ends_at_the_deadline() {
    let hangs = eventually(Duration::from_secs(1), "an answer", async || {
        pending::<bool>().await
    });
    let text = panics(hangs).await;
    assert!(text.contains("last seen: nothing"), "{text}");
}
