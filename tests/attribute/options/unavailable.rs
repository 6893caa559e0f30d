use distlock::{Blocker, MemoryServer};
use distlock_test_backends::Disturbed as _;
use distlock_test_backends::faults::{Fault, Faults, Op};

use super::*;

fn faulty(op: Op) -> Client {
    let faults = Faults::new();
    faults.always(op, Fault::FailBefore);
    let builder = Client::builder().faults(&faults);
    builder.in_memory(&MemoryServer::new()).expect(MEMORY)
}

#[distributed_lock(key = "k", client = client, wait = "1s", on_busy = |_| Ok(0))]
async fn locked(client: &Client, result: Result<u8, Error>) -> Result<u8, Error> {
    result
}

#[tokio::test(start_paused = true)]
async fn unanswered_acquisition_is_unavailable_and_not_busy() {
    let error = soon(locked(&faulty(Op::Attempt), Ok(1))).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn unanswered_release_keeps_the_result_of_the_body() {
    let client = faulty(Op::Release);
    assert_eq!(soon(locked(&client, Ok(1))).await.unwrap(), 1);
}

#[distributed_lock(key = "k", client = client, wait = "1s", on_unavailable = "run")]
async fn goes_on(client: &Client) -> Result<&'static str, Error> {
    Ok("ran")
}

#[distributed_lock(key = "k", client = client, wait = "1s", on_unavailable = "fail")]
async fn gives_up(client: &Client) -> Result<&'static str, Error> {
    Ok("ran")
}

#[tokio::test(start_paused = true)]
async fn unanswered_acquisition_runs_the_body_with_on_unavailable_run_only() {
    let client = faulty(Op::Attempt);
    assert_eq!(soon(goes_on(&client)).await.unwrap(), "ran");
    let error = soon(gives_up(&client)).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
}

#[distributed_lock(key = "k", client = client, wait = "200ms", on_busy = |_| Ok("busy"))]
async fn skips(client: &Client) -> Result<&'static str, Error> {
    Ok("ran")
}

#[distributed_lock(key = "k", client = client, wait = "200ms", on_unavailable = "run")]
async fn hurries(client: &Client) -> Result<&'static str, Error> {
    Ok("ran")
}

/// The wait is too short to tell a slow answer from an outage.
#[tokio::test(start_paused = true)]
async fn short_wait_at_a_silent_server_is_not_busy_and_runs_nothing() {
    let faults = Faults::new();
    for op in [Op::Attempt, Op::Release] {
        faults.always(op, Fault::Never);
    }
    let builder = Client::builder().faults(&faults);
    let client = builder.in_memory(&MemoryServer::new()).expect(MEMORY);
    for called in [skips(&client).await, hurries(&client).await] {
        let blocker = match &called {
            Err(Error::Timeout { blocker, .. }) => *blocker,
            other => panic!("{other:?}"),
        };
        assert_eq!(blocker, Blocker::Unanswered);
    }
    // The silence is long enough now.
    assert_eq!(hurries(&client).await.unwrap(), "ran");
}

#[tokio::test(start_paused = true)]
async fn lock_held_by_another_is_busy_even_with_on_unavailable_run() {
    let client = Client::in_memory();
    let guard = client.lock("k").acquire().await.unwrap();
    let error = soon(goes_on(&client)).await.unwrap_err();
    assert!(error.is_busy(), "{error:?}");
    guard.release().await.unwrap();
    assert_eq!(goes_on(&client).await.unwrap(), "ran");
}

#[distributed_lock(key = "k", client = client, mode = spin, wait = "10s", on_unavailable = run)]
async fn spins(client: &Client) -> Result<&'static str, Error> {
    Ok("ran")
}

#[tokio::test(start_paused = true)]
async fn last_answer_decides_between_busy_and_unavailable() {
    let faults = Faults::new();
    let builder = Client::builder().faults(&faults);
    let client = builder.in_memory(&MemoryServer::new()).expect(MEMORY);
    let guard = client.lock("k").acquire().await.unwrap();
    let falls_silent = async {
        sleep(Duration::from_secs(5)).await;
        faults.always(Op::Attempt, Fault::FailBefore);
    };
    let (ran, ()) = tokio::join!(soon(spins(&client)), falls_silent);
    assert_eq!(ran.unwrap(), "ran");
    let answers_again = async {
        sleep(Duration::from_secs(2)).await;
        faults.clear(Op::Attempt);
    };
    let (busy, ()) = tokio::join!(soon(spins(&client)), answers_again);
    let error = busy.unwrap_err();
    assert!(error.is_busy(), "{error:?}");
    assert!(guard.is_held());
}

#[distributed_lock(key = "k", client = client, wait = "1s", on_unavailable = run)]
async fn loses(client: &Client) -> Result<(), Error> {
    client.lock("k").force_release().await?;
    Ok(())
}

#[tokio::test]
async fn lost_lock_is_an_error_even_with_on_unavailable_run() {
    let error = loses(&Client::in_memory()).await.unwrap_err();
    assert!(error.is_lost(), "{error:?}");
}

#[distributed_lock(key = "k", client = servers, wait = "1s", on_unavailable = "run")]
async fn goes_on_without_a_majority(servers: &Quorum) -> Result<&'static str, Error> {
    Ok("ran")
}

#[tokio::test(start_paused = true)]
async fn majority_that_does_not_answer_is_unavailable() {
    let (here, away) = (Client::in_memory(), Op::Attempt);
    let minority = Quorum::new([here.clone(), faulty(away), faulty(away)]);
    let ran = soon(goes_on_without_a_majority(&minority)).await;
    assert_eq!(ran.unwrap(), "ran");
    let _guard = here.lock("k").acquire().await.unwrap();
    let error = soon(goes_on_without_a_majority(&Quorum::new([here.clone()]))).await;
    assert!(error.unwrap_err().is_busy());
}
