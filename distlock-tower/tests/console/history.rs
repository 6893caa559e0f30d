//! The history of a key over looks that fail.

use std::time::Duration;

use distlock::{Client, MemoryServer};
use distlock_test_backends::Disturbed as _;
use distlock_test_backends::faults::{Fault, Faults, Op};
use serde_json::json;
use tokio::time::sleep;

use super::{app, json};

#[tokio::test(start_paused = true)]
async fn what_happened_while_the_looks_failed_has_no_exact_times_and_is_no_loss() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let watcher = Client::builder().faults(&faults).in_memory(&server);
    let app = app(&watcher.unwrap());
    let worker = Client::builder().in_memory(&server).unwrap();
    json(&app, "/locks/api/locks").await;
    let guard = worker.lock("a").acquire().await.unwrap();
    let look = Duration::from_secs(2);
    sleep(look).await;
    let seen = json(&app, "/locks/api/locks").await;
    assert_eq!(seen["locks"][0]["holders"][0]["is_since_exact"], true);

    // Longer than the lease, which is renewed.
    faults.always(Op::Inspect, Fault::FailBefore);
    for _ in 0..30 {
        sleep(look).await;
        let seen = json(&app, "/locks/api/locks").await;
        assert_eq!(seen["trouble"]["kind"], "unavailable", "{seen}");
    }
    guard.release().await.unwrap();
    let _late = worker.lock("b").acquire().await.unwrap();
    faults.clear(Op::Inspect);
    sleep(look).await;
    let seen = json(&app, "/locks/api/locks").await;
    assert_eq!(seen["problems"], json!([]));
    assert_eq!(seen["locks"][0]["key"], "b", "{seen}");
    assert_eq!(seen["locks"][0]["holders"][0]["is_since_exact"], false);
    let past = &json(&app, "/locks/api/lock?key=a").await["past"][0];
    assert_eq!(
        (&past["end"], &past["is_exact"]),
        (&json!("unknown"), &json!(false))
    );
}
