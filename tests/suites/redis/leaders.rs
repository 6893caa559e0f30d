//! Candidates in several processes: what follows when the leader is killed, stands still, or ends in a planned way.

use std::time::Duration;

use distlock_tests::{Process, RedisServer, eventually};

use super::{SOON, client, listened};

const KEY: &str = "leader:invoices";

fn candidate(server: &RedisServer, lease: Duration) -> Process {
    let lease = lease.as_millis().to_string();
    Process::start(
        env!("CARGO_BIN_EXE_candidate"),
        [server.url(), lease, KEY.to_owned()],
    )
}

/// The numbers of a line: the term, and when it was written.
fn numbers(line: &str) -> (u64, Duration) {
    let numbers: Vec<u64> = line
        .split(' ')
        .skip(1)
        .map(|word| word.parse().unwrap())
        .collect();
    (numbers[0], Duration::from_nanos(numbers[1]))
}

/// A leader, and another candidate that waits.
async fn two(server: &RedisServer, lease: Duration) -> (Process, u64, Process) {
    let mut one = candidate(server, lease);
    let (term, _) = numbers(&one.expect("leads", SOON).await);
    let two = candidate(server, lease);
    listened(server, KEY, 1).await;
    (one, term, two)
}

#[tokio::test]
async fn killed_leader_is_followed_when_its_lease_is_over_and_not_before() {
    let (server, lease) = (RedisServer::start().await, Duration::from_secs(5));
    let (mut one, first, mut two) = two(&server, lease).await;
    let lock = client(&server).await.fenced_lock(KEY);
    one.kill();
    // Before the question: on a busy machine, its answer takes a while.
    let killed = tokio::time::Instant::now();
    let left = lock
        .remaining_lease()
        .await
        .unwrap()
        .expect("it is still held");
    let (second, _) = numbers(&two.expect("leads", lease + SOON).await);
    assert!(second > first, "{second} after {first}");
    let took = killed.elapsed();
    assert!(
        took + Duration::from_millis(100) >= left,
        "{took:?} of {left:?}"
    );
}

#[tokio::test]
async fn leader_that_stood_still_ends_its_body_when_it_goes_on_and_is_a_candidate_again() {
    let (server, lease) = (RedisServer::start().await, Duration::from_secs(4));
    let (mut one, first, mut two) = two(&server, lease).await;
    one.stop();
    let (second, _) = numbers(&two.expect("leads", lease + SOON).await);
    assert!(second > first, "{second} after {first}");
    one.cont();
    // The next line would be `late` if its body had run on.
    let (ended, _) = numbers(&one.expect("ended", SOON).await);
    assert_eq!(ended, first);
    // It follows when the other one is killed.
    listened(&server, KEY, 1).await;
    two.kill();
    let (third, _) = numbers(&one.expect("leads", lease + SOON).await);
    assert!(third > second, "{third} after {second}");
}

#[tokio::test]
async fn leader_that_resigns_at_sigterm_is_followed_long_before_its_lease_would_end() {
    let (server, lease) = (RedisServer::start().await, Duration::from_secs(60));
    let (mut one, mut term, mut next) = two(&server, lease).await;
    for _ in 0..3 {
        one.terminate();
        let (ended, at) = numbers(&one.expect("ended", SOON).await);
        assert_eq!(ended, term);
        one.expect("resigned", SOON).await;
        assert!(one.wait(SOON).await.success());
        let (follows, began) = numbers(&next.expect("leads", SOON).await);
        assert!(follows > term, "{follows} after {term}");
        println!(
            "from the end of a body to the next leader's body: {:?}",
            began.saturating_sub(at)
        );
        (one, term, next) = (next, follows, candidate(&server, lease));
        listened(&server, KEY, 1).await;
    }
}

#[tokio::test]
async fn candidate_that_ends_at_sigterm_leaves_the_leader_alone() {
    let (server, lease) = (RedisServer::start().await, Duration::from_secs(60));
    let (mut one, _, mut two) = two(&server, lease).await;
    two.terminate();
    two.expect("resigned", SOON).await;
    assert!(two.wait(SOON).await.success());
    assert!(
        client(&server)
            .await
            .fenced_lock(KEY)
            .is_locked()
            .await
            .unwrap()
    );
    one.terminate();
    one.expect("ended", SOON).await;
    one.expect("resigned", SOON).await;
    let lock = client(&server).await.fenced_lock(KEY);
    eventually(SOON, "free", || async {
        let is_locked = lock.is_locked().await.unwrap();
        (!is_locked).then_some(()).ok_or(is_locked)
    })
    .await;
}

#[tokio::test]
async fn candidate_that_waits_counts_the_others_by_one_command() {
    let server = RedisServer::start().await;
    let (leads, waits) = (client(&server).await, client(&server).await);
    let guard = leads.fenced_lock(KEY).acquire().await.unwrap();
    let candidate = tokio::spawn(waits.leader(KEY).run(|_| async {}));
    eventually(SOON, "a count", || async {
        server.command_calls("pubsub|numsub").await > 0
    })
    .await;
    // A look at the key would send this one.
    assert_eq!(server.command_calls("type").await, 0);
    guard.release().await.unwrap();
    candidate.await.unwrap().unwrap();
}
