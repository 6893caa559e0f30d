//! Leaders of distlock beside fenced locks of Redisson: they are the same lock.

use distlock_interop::{Actor, Call, Grant, Kind, Pending};
use distlock_tests::eventually;
use distlock_tests::pulse::monotonic_nanos;

use crate::case::{Case, cases};
use crate::stage::{DEADLINE, Lock, SHORT, Stage, assert_by_message, assert_soon};
use crate::table::Row;

const ROUNDS: usize = 3;

/// A program of distlock that campaigns for the lock, and what the test knows of its terms.
struct Candidate {
    actor: Actor,
    lock: Lock,
}

impl Candidate {
    async fn campaigns(actor: Actor, lock: Lock) -> Self {
        let candidate = Self { actor, lock };
        candidate.ask::<bool>("campaign").await;
        candidate
    }

    async fn ask<T: serde::de::DeserializeOwned>(&self, op: &str) -> T {
        self.call(op).value().await
    }

    fn call(&self, op: &str) -> Pending {
        self.actor.call(Call::new(op, self.lock.0, &self.lock.1))
    }

    async fn term(&self) -> Option<u64> {
        self.ask("term").await
    }

    /// Its term, once it leads; with the time.
    async fn elected(&self) -> (u64, u64) {
        let elected = self.call("elected").timed::<u64>().await;
        (elected.value, elected.ended)
    }
}

#[track_caller]
fn token(grant: &Grant) -> u64 {
    grant.token.expect("a token")
}

async fn leader_and_java_exclude_each_other_and_terms_rise_over_both(stage: Stage) {
    let (lock, rust, java) = stage.parts().await;
    let mut last = 0;
    for _ in 0..ROUNDS {
        let held = token(&java.take(&lock).await);
        assert!(held > last, "the token {held} after {last}");
        let candidate = Candidate::campaigns(rust.clone(), lock.clone()).await;
        stage.until_asleep(&rust, &lock).await;
        assert_eq!(candidate.term().await, None, "a leader beside a holder");
        let released = java.release(&lock).timed::<bool>().await;
        let (term, elected) = candidate.elected().await;
        assert!(term > held, "the term {term} after the token {held}");
        assert_by_message("the election", released.began, elected);

        assert!(
            java.try_take(&lock).await.is_none(),
            "a holder beside a leader"
        );
        assert!(java.ask::<bool>("is_locked", &lock).await);
        let waiting = java.acquire(&lock, None);
        stage.until_asleep(&java, &lock).await;
        assert_eq!(candidate.term().await, Some(term));
        assert!(!waiting.is_answered(), "a holder beside a leader");
        let resigned = candidate.call("resign").timed::<bool>().await;
        assert!(resigned.value, "a body without an end has ended");
        let granted = waiting.granted().await;
        assert_by_message("the grant", resigned.began, granted.ended);
        last = token(&granted.value);
        assert!(last > term, "the token {last} after the term {term}");
        java.release(&lock).value::<bool>().await;
    }
}

async fn leader_that_java_forces_out_leads_again_after_java_in_a_higher_term(stage: Stage) {
    let (lock, rust, java) = stage.parts().await;
    let candidate = Candidate::campaigns(rust, lock.clone()).await;
    let (term, _) = candidate.elected().await;
    let waiting = java.acquire(&lock, None);
    stage.until_asleep(&java, &lock).await;
    let forcer = stage.waiter("f").await;
    assert!(forcer.ask::<bool>("force_release", &lock).await);
    // Both have heard of it, and one of them was first.
    let held = token(&waiting.granted().await.value);
    assert!(held > term, "the token {held} after the term {term}");
    let ended = async || match candidate.term().await {
        None => Ok(()),
        other => Err(format!("{other:?}")),
    };
    eventually(DEADLINE, "the end of the term", ended).await;
    java.release(&lock).value::<bool>().await;
    let (again, _) = candidate.elected().await;
    assert!(again > held, "the term {again} after the token {held}");
    candidate.ask::<bool>("resign").await;
}

async fn java_follows_a_killed_leader_when_its_lease_ends(stage: Stage) {
    let (lock, java, mortal) = (stage.lock(), stage.waiter("w").await, stage.mortal().await);
    let candidate = Candidate::campaigns(mortal.actor("leader"), lock.clone()).await;
    let (term, _) = candidate.elected().await;
    let waiting = java.acquire(&lock, None);
    stage.until_asleep(&java, &lock).await;
    mortal.kill();
    let ends = monotonic_nanos() + SHORT * 1_000_000;
    let granted = waiting.granted().await;
    assert_soon("the grant", ends, granted.ended);
    let held = token(&granted.value);
    assert!(held > term, "the token {held} after the term {term}");
    java.release(&lock).value::<bool>().await;
}

pub(super) fn cases() -> Vec<Case> {
    let cases = cases![Row::Leader, Kind::Fenced;
        leader_and_java_exclude_each_other_and_terms_rise_over_both,
        leader_that_java_forces_out_leads_again_after_java_in_a_higher_term,
        java_follows_a_killed_leader_when_its_lease_ends,
    ];
    // Only distlock has leaders, so both directions are one.
    cases.into_iter().map(Case::symmetrical).collect()
}
