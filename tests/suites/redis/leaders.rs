//! Candidates in several processes: what follows when the leader is killed, stands still, or ends in a planned way.

use std::future::pending;
use std::time::Duration;

use distlock::{Client, Error, Leader};
use distlock_tests::rights::{self, PASSWORD};
use distlock_tests::{Process, RedisServer, eventually};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::{SOON, client, listened, ms};

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
    let killed = Instant::now();
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

/// A user of the server who has another password than a candidate's client, which does without answers for this long. The candidate
/// campaigns.
async fn refused_candidate(
    server: &RedisServer,
    unavailable_after: Duration,
) -> (Leader, JoinHandle<Result<Option<()>, Error>>) {
    server.set_user("candidate", &rights::all()).await;
    let other = ["ACL", "SETUSER", "candidate", "resetpass", ">other"];
    server.cli(&other).await;
    let url = format!("redis://candidate:{PASSWORD}@{}", server.addr());
    let lazy = Client::builder()
        .unavailable_after(unavailable_after)
        .key_prefix("shop:")
        .connect_lazy(&url)
        .unwrap();
    let leader = lazy.leader("invoices");
    let run = tokio::spawn(leader.run(|_| pending()));
    (leader, run)
}

#[tokio::test]
async fn candidate_whose_login_is_refused_for_a_while_leads_when_the_password_is_right() {
    let server = RedisServer::start().await;
    let (leader, mut run) = refused_candidate(&server, SOON * 3).await;
    let refused = async || server.command_calls("hello").await >= 3;
    eventually(SOON, "refused logins", refused).await;
    assert!(!run.is_finished(), "{:?}", run.await);
    let password = format!(">{PASSWORD}");
    let right = ["ACL", "SETUSER", "candidate", "resetpass", &password];
    server.cli(&right).await;
    let elected = async {
        tokio::select! {
            _term = leader.elected() => {}
            ended = &mut run => panic!("{ended:?}"),
        }
    };
    timeout(SOON, elected).await.expect("a leader");
    leader.resign().await;
    assert!(run.await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn candidate_whose_logins_are_refused_for_as_long_as_an_acquisition_waits_is_denied() {
    let (server, most, start) = (RedisServer::start().await, ms(500), Instant::now());
    let (_leader, run) = refused_candidate(&server, most).await;
    let ended = timeout(most + SOON, run).await.expect("it ends");
    let error = ended.unwrap().unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error}");
    assert!(start.elapsed() >= most, "{:?}", start.elapsed());
}

#[tokio::test]
async fn candidate_without_a_right_is_denied_at_once() {
    let server = RedisServer::start().await;
    server
        .set_user("candidate", &rights::of(rights::LOCKS))
        .await;
    let url = format!("redis://candidate:{PASSWORD}@{}", server.addr());
    let builder = Client::builder().unavailable_after(SOON * 3);
    let client = builder.key_prefix("shop:").connect(&url).await.unwrap();
    server
        .cli(&["ACL", "SETUSER", "candidate", "resetkeys"])
        .await;
    let run = client.leader("invoices").run(|_| async {});
    let error = timeout(SOON, run).await.expect("it ends").unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error}");
}
