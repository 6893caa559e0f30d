//! `distlock release`.

use distlock_tests::eventually;

use super::*;

#[tokio::test]
async fn lock_of_another_is_released_with_yes_and_a_second_time_there_is_none() {
    let server = RedisServer::start().await;
    let mut run = start(
        &server,
        &[
            "run",
            "job",
            "--lease",
            "6s",
            "--",
            "sh",
            "-c",
            "echo running; read line",
        ],
    );
    run.expect("running", SOON).await;
    let released = output(&server, &["release", "job", "--yes"]).await;
    assert_eq!(released.status.code(), Some(0), "{}", stderr(&released));
    let said = stdout(&released);
    assert!(
        said.starts_with("job is free; it was taken from "),
        "{said}"
    );
    let owner = said.trim_end().trim_end_matches(')');
    assert!(
        owner.contains(" (") && owner.ends_with(|end: char| end.is_ascii_digit()),
        "{said}"
    );
    assert_eq!(run.wait(SOON).await.code(), Some(79));

    let again = output(&server, &["release", "job", "--yes", "--json"]).await;
    assert_eq!(again.status.code(), Some(1), "{}", stderr(&again));
    let said: serde_json::Value = serde_json::from_str(&stdout(&again)).unwrap();
    let nobody =
        serde_json::json!({ "key": "job", "released": false, "from": null, "number": null });
    assert_eq!(said, nobody);
}

#[tokio::test]
async fn without_a_terminal_and_without_yes_nothing_is_released() {
    let server = RedisServer::start().await;
    let mut run = start(
        &server,
        &["run", "job", "--", "sh", "-c", "echo running; read line"],
    );
    run.expect("running", SOON).await;
    let refused = output(&server, &["release", "job"]).await;
    assert_eq!(refused.status.code(), Some(64));
    assert!(stderr(&refused).contains("--yes"), "{}", stderr(&refused));
    assert_eq!(server.keys().await, ["job"]);
}

/// A program that has done with its semaphore or latch, and has left it behind.
async fn client(server: &RedisServer) -> distlock::Client {
    distlock::Client::builder()
        .name("worker")
        .connect(&server.url())
        .await
        .unwrap()
}

#[tokio::test]
async fn semaphore_latch_and_number_are_deleted_and_it_says_what_they_were() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let pool = client.semaphore("pool");
    pool.try_set_permits(3).await.unwrap();
    let _permit = pool.acquire().await.unwrap();
    let jobs = client.expirable_semaphore("jobs");
    jobs.try_set_permits(2).await.unwrap();
    let _job = jobs.acquire().await.unwrap();
    let latch = client.count_down_latch("start");
    latch.try_set_count(7).await.unwrap();
    let used_once = client.count_down_latch("used once");
    used_once.try_set_count(4).await.unwrap();
    let waiting = tokio::spawn(async move { latch.wait().await });
    eventually(SOON, "the latch is waited for", || async {
        client.inspect("start").await.unwrap().primitive == distlock::Primitive::CountDownLatch
    })
    .await;
    for (key, was) in [
        (
            "pool",
            "it was a semaphore of which 2 permits are free and 1 taken by worker (",
        ),
        (
            "jobs",
            "it was a semaphore of which 1 permits are free and 1 taken by ",
        ),
        ("start", "it was a latch at 7"),
        ("used once", "it was the number 4"),
    ] {
        let released = output(&server, &["release", key, "--yes"]).await;
        assert_eq!(released.status.code(), Some(0), "{}", stderr(&released));
        let said = stdout(&released);
        assert!(
            said.starts_with(&format!("{key} is deleted; {was}")),
            "{said}"
        );
    }
    for key in ["pool", "jobs", "start", "used once"] {
        let now = client.inspect(key).await.unwrap().primitive;
        assert_eq!(now, distlock::Primitive::Nothing, "{key}");
    }
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn data_of_another_program_is_refused() {
    let server = RedisServer::start().await;
    server.cli(&["SET", "text", "words"]).await;
    let refused = output(&server, &["release", "text", "--yes"]).await;
    assert_eq!(refused.status.code(), Some(64), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("other_data"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(server.keys().await, ["text"]);
}
