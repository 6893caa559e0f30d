//! `distlock release`.

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
            "1s",
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
    let nobody = serde_json::json!({ "key": "job", "released": false, "from": null });
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
