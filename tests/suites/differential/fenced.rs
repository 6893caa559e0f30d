//! The fenced lock and its tokens, also where the last one, or all data, is lost.
//!
//! A token of the server's own is its time, which is another on both sides; one above what a client has seen is the same.
//! So attempts that have seen a token above all times have theirs compared exactly.

use std::time::Duration;

use distlock::Client;
use distlock::test_util::{Answer, Kind, Verbs};
use distlock_tests::RedisServer;
use proptest::prelude::*;
use uuid::Uuid;

use super::agree::{self, Event, Step};
use super::lock::expire;
use super::side::{DataLoss, KEYS};

/// Above the time in microseconds for centuries to come, and above what a number of Lua's can tell apart.
const SEEN: u64 = 1 << 53;

#[derive(Clone, Debug)]
enum FencedStep {
    /// By an owner whose client has seen this token; sent twice where it says so.
    Attempt {
        key: usize,
        owner: u64,
        lease: Duration,
        seen: u64,
        twice: bool,
    },
    Renew {
        key: usize,
        owner: u64,
        lease: Duration,
    },
    Release {
        key: usize,
        owner: u64,
    },
    ForceRelease {
        key: usize,
    },
    Inspect {
        key: usize,
    },
    Expire {
        key: usize,
        owner: u64,
    },
}

fn step() -> impl Strategy<Value = FencedStep> {
    let (key, owner) = (0..KEYS.len(), 1..4_u64);
    let lease = agree::long_leases();
    let seen = prop_oneof![Just(0), (0..20_u64).prop_map(|n| SEEN + n)];
    let attempt = (
        key.clone(),
        owner.clone(),
        lease.clone(),
        seen,
        any::<bool>(),
    );
    let held = (key.clone(), owner);
    prop_oneof![
        8 => attempt.prop_map(|(key, owner, lease, seen, twice)| {
            FencedStep::Attempt { key, owner, lease, seen, twice }
        }),
        1 => (held.clone(), lease)
            .prop_map(|((key, owner), lease)| FencedStep::Renew { key, owner, lease }),
        5 => held.clone().prop_map(|(key, owner)| FencedStep::Release { key, owner }),
        1 => key.clone().prop_map(|key| FencedStep::ForceRelease { key }),
        1 => key.prop_map(|key| FencedStep::Inspect { key }),
        2 => held.prop_map(|(key, owner)| FencedStep::Expire { key, owner }),
    ]
}

fn event() -> impl Strategy<Value = Event<FencedStep>> {
    let token_lost = (0..KEYS.len()).prop_map(DataLoss::TokenLost);
    prop_oneof![
        18 => step().prop_map(Event::Step),
        1 => token_lost.prop_map(Event::Loses),
        1 => Just(Event::Loses(DataLoss::AllLost)),
    ]
}

/// The token of a grant is never below one that its client has seen, and sent again it is the same.
async fn attempt(verbs: &Verbs, (key, owner): (&str, u64), lease: Duration, seen: u64) -> Answer {
    let answer = verbs.attempt_above(key, owner, lease, seen).await.unwrap();
    if let Answer::Token(token) = answer {
        assert!(token.unwrap() >= seen, "{token:?} for one who saw {seen}");
    }
    answer
}

impl Step for FencedStep {
    async fn take(&self, verbs: &Verbs) -> Answer {
        let answer = match self {
            Self::Attempt {
                key,
                owner,
                lease,
                seen,
                twice,
            } => {
                let held = (KEYS[*key], *owner);
                let answer = attempt(verbs, held, *lease, *seen).await;
                if *twice && let Answer::Token(_) = answer {
                    assert_eq!(attempt(verbs, held, *lease, *seen).await, answer);
                }
                Ok(answer)
            }
            Self::Renew { key, owner, lease } => {
                verbs.renew(&[(KEYS[*key], *owner, 1, *lease)]).await
            }
            Self::Release { key, owner } => verbs.release(KEYS[*key], *owner).await,
            Self::ForceRelease { key } => verbs.force_release(KEYS[*key]).await,
            Self::Inspect { key } => verbs.inspect(KEYS[*key]).await,
            Self::Expire { key, owner } => expire(verbs, KEYS[*key], *owner).await,
        };
        answer.unwrap()
    }

    const COMPARES_LOCKS: bool = true;
}

// By its own name, which `FAILURES.md` has.
#[test]
fn memory_and_redis_agree() {
    agree::memory_and_redis_agree(Kind::Fenced, event(), (80, 200));
}

agree::agree_on_several_servers!(Kind::Fenced, "", event(), (80, 200));

/// The answers that both backends must give are right, and not only alike.
#[tokio::test(start_paused = true)]
async fn verbs_answer_what_they_promise() {
    let verbs = Verbs::new(&Client::in_memory(), Uuid::from_u128(7)).of_kind(Kind::Fenced);
    let lease = Duration::from_secs(1);
    let token = async |owner, seen| match verbs.attempt_above("a", owner, lease, seen).await {
        Ok(Answer::Token(Some(token))) => token,
        other => panic!("{other:?}"),
    };
    // Of one grant there is one token, and the next has a higher one: after a release, and after the lease.
    let first = token(1, 0).await;
    assert_eq!(token(1, first).await, first);
    verbs.release("a", 1).await.unwrap();
    let second = token(2, 0).await;
    assert!(second > first);
    tokio::time::sleep(lease).await;
    assert!(token(3, 0).await > second);
    verbs.release("a", 3).await.unwrap();
    // What a client has seen counts, also for a grant that the server made before others that it has forgotten.
    assert_eq!(token(4, SEEN + 6).await, SEEN + 7);
    assert_eq!(token(4, SEEN + 7).await, SEEN + 7);
    assert_eq!(token(4, SEEN + 8).await, SEEN + 9);
    tokens_go_on_after_an_attempt_that_saw_the_highest_number(&verbs).await;
}

/// No server has issued such a token. It would be the last one.
async fn tokens_go_on_after_an_attempt_that_saw_the_highest_number(verbs: &Verbs) {
    let lease = Duration::from_secs(60);
    for seen in [i64::MAX as u64, u64::MAX] {
        let refused = verbs.attempt_above("b", 1, lease, seen).await;
        assert!(refused.is_err(), "{refused:?}");
        let Answer::Token(Some(token)) = verbs.attempt_above("b", 2, lease, 0).await.unwrap()
        else {
            panic!("another owner has it");
        };
        assert!(token < SEEN, "{token}");
        verbs.release("b", 2).await.unwrap();
    }
}

#[tokio::test]
async fn tokens_go_on_in_redis_after_an_attempt_that_saw_the_highest_number() {
    let server = RedisServer::start().await;
    let client = Client::builder().connect(&server.url()).await.unwrap();
    let verbs = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Fenced);
    tokens_go_on_after_an_attempt_that_saw_the_highest_number(&verbs).await;
}
