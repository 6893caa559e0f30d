//! One candidate of several leads, with a term above all before it, and another one follows when it stops.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use distlock::test_util::{Sizes, sizes};
use distlock::{Builder, Client, Error, Leader};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Op};
use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::stage::{Stage, refused};

const KEY: &str = "leader:invoices";

type Run = JoinHandle<Result<Option<()>, Error>>;

/// A candidate that leads until it loses the lead, or resigns.
fn candidate(client: &Client) -> (Leader, Run) {
    let leader = client.leader(KEY);
    let run = tokio::spawn(leader.run(|_| pending::<()>()));
    (leader, run)
}

/// The position of the candidate that leads.
async fn leading(stage: &Stage, candidates: &[(Leader, Run)]) -> usize {
    let leads = |at: &usize| candidates[*at].0.is_leader();
    let one = async || (0..candidates.len()).any(|at| leads(&at));
    stage.eventually("a leader", 2 * stage.lease(), one).await;
    let leaders: Vec<usize> = (0..candidates.len()).filter(leads).collect();
    assert_eq!(leaders.len(), 1, "{leaders:?}");
    leaders[0]
}

async fn resigned(candidates: Vec<(Leader, Run)>) {
    for (leader, run) in candidates {
        leader.resign().await;
        assert!(run.await.unwrap().unwrap().is_none());
    }
}

async fn leaders_follow_each_other_at_once_with_growing_terms(stage: &Stage) {
    let mut candidates = Vec::new();
    for _ in 0..3 {
        candidates.push(candidate(&stage.client().await));
    }
    let mut last = 0;
    while !candidates.is_empty() {
        let at = leading(stage, &candidates).await;
        let (leader, run) = candidates.remove(at);
        let term = leader.term().unwrap();
        assert!(term > last, "{term} after {last}");
        last = term;
        // Each candidate says the same.
        let owner = leader.who().await.unwrap().unwrap().owner;
        for (other, _) in &candidates {
            assert_eq!(other.who().await.unwrap().unwrap().owner, owner);
        }
        let start = Instant::now();
        leader.resign().await;
        assert!(!leader.is_leader() && run.await.unwrap().unwrap().is_none());
        if !candidates.is_empty() {
            leading(stage, &candidates).await;
        }
        let most = stage.slack() + Duration::from_millis(5);
        assert!(start.elapsed() < most, "{:?}", start.elapsed());
    }
    stage.is_free(KEY).await;
}

/// Each question would be a line in the server's log of denied commands.
async fn candidate_that_may_not_count_the_others_asks_once(stage: &Stage) {
    let (leads, waits) = (stage.client().await, stage.faulty_client().await);
    let first = candidate(&leads);
    stage
        .eventually("a leader", stage.lease(), async || first.0.is_leader())
        .await;
    stage.faults().always(Op::Inspect, Fault::Garbled);
    let second = candidate(&waits);
    let asked = async || stage.faults().calls(Op::Inspect) > 0;
    stage.eventually("a question", stage.lease(), asked).await;
    sleep(stage.lease() * 20).await;
    assert_eq!(stage.faults().calls(Op::Inspect), 1);
    resigned(vec![first, second]).await;
}

async fn leader_that_loses_its_lead_drops_its_body_and_campaigns_again(stage: &Stage) {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    let (client, other) = (stage.client().await, stage.client().await);
    let leader = client.leader(KEY);
    let (begun, dropped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let run = tokio::spawn(leader.run({
        let (begun, dropped) = (Arc::clone(&begun), Arc::clone(&dropped));
        move |_| {
            begun.fetch_add(1, Ordering::Relaxed);
            let counted = Counted(Arc::clone(&dropped));
            async move {
                let _counted = counted;
                pending::<()>().await;
            }
        }
    }));
    let first = leader.elected().await;
    assert!(other.fenced_lock(KEY).force_release().await.unwrap());
    let again = async || leader.term().is_some_and(|term| term > first);
    stage
        .eventually("another term", 2 * stage.lease(), again)
        .await;
    assert_eq!(begun.load(Ordering::Relaxed), 2);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    leader.resign().await;
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    assert!(run.await.unwrap().unwrap().is_none());
}

async fn body_that_ends_gives_its_value_and_the_lead_back(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let leader = client.leader(KEY);
    let inside = leader.clone();
    let body = move |term| {
        let inside = inside.clone();
        async move {
            assert_eq!(inside.term(), Some(term));
            assert_eq!(
                distlock::current(KEY).and_then(|hold| hold.fencing_token()),
                Some(term)
            );
            term
        }
    };
    let first = leader.run(body.clone()).await.unwrap().unwrap();
    assert_eq!(leader.term(), None);
    let next = other.fenced_lock(KEY).try_acquire().await.unwrap().unwrap();
    assert!(next.token() > first);
    next.release().await.unwrap();
    assert!(leader.run(body).await.unwrap().unwrap() > first);
}

async fn fenced_lock_of_the_same_key_keeps_candidates_out(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let guard = other.fenced_lock(KEY).acquire().await.unwrap();
    let (leader, run) = candidate(&client);
    sleep(stage.part(10)).await;
    assert!(!leader.is_leader());
    assert_eq!(
        leader.who().await.unwrap().unwrap().client_id(),
        Some(other.id())
    );
    let token = guard.token();
    let start = Instant::now();
    guard.release().await.unwrap();
    assert!(leader.elected().await > token);
    stage.assert_took(start, Duration::ZERO);
    assert!(
        other
            .fenced_lock(KEY)
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    resigned(vec![(leader, run)]).await;
}

async fn candidate_that_resigns_ends_and_campaigns_again_when_it_is_asked(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let guard = other.fenced_lock(KEY).acquire().await.unwrap();
    let (leader, run) = candidate(&client);
    sleep(stage.part(20)).await;
    leader.resign().await;
    assert!(run.await.unwrap().unwrap().is_none());
    guard.release().await.unwrap();
    sleep(stage.part(20)).await;
    assert!(!leader.is_leader());
    // Without a run under way there is nothing to wait for.
    leader.resign().await;
    assert!(leader.run(|_| async {}).await.unwrap().is_some());
}

async fn candidate_that_resigns_while_its_attempt_is_under_way_leaves_nothing(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let late = Fault::DelayReply(stage.part(10));
    stage.faults().always(Op::Attempt, late);
    let (leader, run) = candidate(&client);
    let lock = other.fenced_lock(KEY);
    let is_granted = async || lock.is_locked().await.unwrap();
    stage.eventually("a grant", stage.lease(), is_granted).await;
    leader.resign().await;
    assert_eq!(sizes(&client).pending_releases, 0);
    assert!(!lock.is_locked().await.unwrap());
    assert!(run.await.unwrap().unwrap().is_none());
}

async fn leader_that_resigns_after_its_key_has_gone_ends_without_an_error(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let (leader, run) = candidate(&client);
    stage
        .eventually("a leader", stage.lease(), async || leader.is_leader())
        .await;
    assert!(other.fenced_lock(KEY).force_release().await.unwrap());
    leader.resign().await;
    assert!(run.await.unwrap().unwrap().is_none());
}

async fn leader_that_resigns_waits_for_its_release_for_one_response_timeout(stage: &Stage) {
    let patience = stage.part(10);
    let set = |builder: Builder| builder.faults(stage.faults()).response_timeout(patience);
    let client = stage.client_with(set).await;
    let (leader, run) = candidate(&client);
    leader.elected().await;
    stage.faults().always(Op::Release, Fault::Never);
    let start = Instant::now();
    leader.resign().await;
    stage.assert_took(start, patience);
    assert!(run.await.unwrap().unwrap().is_none());
    assert_eq!(sizes(&client).pending_releases, 1);
    stage.is_taken(KEY).await;
    stage.faults().clear_all();
    client.close(stage.lease()).await.unwrap();
    stage.is_free(KEY).await;
}

/// The body has returned, as one does that must not be dropped in the middle of its work.
async fn leader_that_resigns_during_its_release_waits_for_one_response_timeout(stage: &Stage) {
    let patience = stage.part(10);
    let set = |builder: Builder| builder.faults(stage.faults()).response_timeout(patience);
    let client = stage.client_with(set).await;
    let leader = client.leader(KEY);
    let ends = Arc::<Notify>::default();
    let of_body = Arc::clone(&ends);
    let run = tokio::spawn(leader.run(move |_| Arc::clone(&of_body).notified_owned()));
    leader.elected().await;
    stage.faults().always(Op::Release, Fault::Never);
    ends.notify_one();
    let is_asked = async || stage.faults().hits(Op::Release) > 0;
    stage.eventually("a release", stage.lease(), is_asked).await;
    let start = Instant::now();
    leader.resign().await;
    stage.assert_took(start, patience);
    assert!(run.await.unwrap().unwrap().is_some());
    stage.faults().clear_all();
    client.close(stage.lease()).await.unwrap();
    stage.is_free(KEY).await;
}

/// The process stands still: nothing is polled until the lease is over.
async fn leader_that_is_not_polled_leads_no_more_when_its_lease_is_over(stage: &Stage) {
    let client = stage.faulty_client().await;
    let leader = client.leader(KEY);
    let polls = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&polls);
    let mut run = pin!(leader.run(move |_| {
        let polls = Arc::clone(&counted);
        poll_fn(move |_| {
            polls.fetch_add(1, Ordering::Relaxed);
            Poll::<()>::Pending
        })
    }));
    let elected = tokio::select! {
        biased;
        term = leader.elected() => term,
        ended = &mut run => panic!("{ended:?}"),
    };
    stage.faults().always(Op::Renew, Fault::FailBefore);
    let before = polls.load(Ordering::Relaxed);
    sleep(stage.lease() + stage.part(10)).await;
    assert!(!leader.is_leader());
    assert_eq!(leader.term(), None);
    stage.faults().clear_all();
    // The body is not polled again, and another term begins.
    let again = tokio::select! {
        biased;
        ended = &mut run => panic!("{ended:?}"),
        term = async {
            loop {
                match leader.term() {
                    Some(term) => return term,
                    None => sleep(stage.part(100)).await,
                }
            }
        } => term,
    };
    assert!(again > elected);
    assert!(polls.load(Ordering::Relaxed) <= before + 2, "{before}");
}

async fn campaign_outlives_an_outage(stage: &Stage) {
    let client = stage.faulty_client().await;
    stage.faults().always(Op::Attempt, Fault::FailBefore);
    let (leader, run) = candidate(&client);
    let tried = async || stage.faults().calls(Op::Attempt) >= 3;
    stage.eventually("attempts", stage.lease(), tried).await;
    sleep(2 * stage.unavailable_after()).await;
    assert!(!run.is_finished() && !leader.is_leader());
    stage.faults().clear_all();
    let elected = timeout(stage.lease(), leader.elected()).await;
    elected.expect("a leader after the outage");
    resigned(vec![(leader, run)]).await;
}

async fn changes_are_told_from_the_present_one_on(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let leader = client.leader(KEY);
    let mut changes = leader.changes();
    assert_eq!(changes.next().await, Some(None));
    let run = tokio::spawn(leader.run(|_| pending::<()>()));
    let first = changes.next().await.flatten().unwrap();
    assert_eq!(leader.changes().next().await, Some(Some(first)));
    other.fenced_lock(KEY).force_release().await.unwrap();
    let mut next = changes.next().await.unwrap();
    if next.is_none() {
        next = changes.next().await.unwrap();
    }
    assert!(next.unwrap() > first);
    leader.resign().await;
    assert_eq!(changes.next().await, Some(None));
    run.await.unwrap().unwrap();
    drop(leader);
    assert_eq!(changes.next().await, None);
}

async fn dropped_run_gives_the_lead_back(stage: &Stage) {
    let client = stage.client().await;
    let (leader, run) = candidate(&client);
    leader.elected().await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    assert!(!leader.is_leader());
    stage.is_free_within(stage.lease() / 2, KEY).await;
    assert_eq!(sizes(&client), Sizes::default());
}

async fn errors_that_last_end_the_campaign(stage: &Stage) {
    let client = stage.unlisted_client().await;
    let error = refused(client.leader("").run(|_| async {}).await);
    assert!(matches!(error, Error::InvalidKey { .. }), "{error}");
    let guard = stage
        .client()
        .await
        .fenced_lock(KEY)
        .acquire()
        .await
        .unwrap();
    let (_leader, run) = candidate(&client);
    sleep(stage.part(20)).await;
    client.close(stage.lease()).await.unwrap();
    // The leader goes on.
    let ended = timeout(stage.lease(), run).await.expect("it ends");
    let error = refused(ended.unwrap());
    assert!(matches!(error, Error::Closed { .. }), "{error}");
    drop(guard);
}

async fn candidate_of_a_client_with_another_identity_looks_at_the_key(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.unlisted_client().await);
    let guard = holder.fenced_lock(KEY).acquire().await.unwrap();
    let candidates = vec![candidate(&client)];
    sleep(stage.part(20)).await;
    client.renew_identity().unwrap();
    sleep(stage.part(20)).await;
    // Without a message, and long before the end of the lease.
    stage.wipe().await;
    let leads = async || candidates[0].0.is_leader();
    stage.eventually("a leader", stage.lease() / 5, leads).await;
    drop(guard);
    resigned(candidates).await;
}

async fn crowd_of_candidates_does_not_ask_at_the_same_moment(stage: &Stage) {
    let crowd = stage.size(30, 200);
    let first = stage.client().await.leader(KEY);
    let leads = tokio::spawn(first.run(|_| pending::<()>()));
    first.elected().await;
    let mut candidates = Vec::new();
    for _ in 0..crowd {
        candidates.push(candidate(&stage.faulty_client().await));
    }
    // Each attempts, subscribes and attempts once more, and then asks how many there are.
    let ready = async || {
        let faults = stage.faults();
        faults.calls(Op::Attempt) >= 2 * crowd && faults.calls(Op::Inspect) >= crowd
    };
    stage.eventually("all wait", stage.lease(), ready).await;
    let before = stage.faults().calls(Op::Attempt);
    first.resign().await;
    leads.await.unwrap().unwrap();
    let next = leading(stage, &candidates).await;
    let attempts = stage.faults().calls(Op::Attempt) - before;
    // In real time, more of them may have asked before this test was told of the leader.
    let most = if stage.is_paused() {
        1 + crowd / 3
    } else {
        crowd
    };
    assert!(attempts <= most, "{attempts} attempts of {crowd}");
    println!("{attempts} attempts of {crowd} candidates before candidate {next} led");
    for (_, run) in &candidates {
        run.abort();
    }
}

on_every_backend![
    leaders_follow_each_other_at_once_with_growing_terms,
    leader_that_loses_its_lead_drops_its_body_and_campaigns_again,
    body_that_ends_gives_its_value_and_the_lead_back,
    fenced_lock_of_the_same_key_keeps_candidates_out,
    candidate_that_resigns_ends_and_campaigns_again_when_it_is_asked,
    candidate_that_resigns_while_its_attempt_is_under_way_leaves_nothing,
    leader_that_resigns_after_its_key_has_gone_ends_without_an_error,
    leader_that_resigns_waits_for_its_release_for_one_response_timeout,
    leader_that_resigns_during_its_release_waits_for_one_response_timeout,
    leader_that_is_not_polled_leads_no_more_when_its_lease_is_over,
    campaign_outlives_an_outage,
    changes_are_told_from_the_present_one_on,
    dropped_run_gives_the_lead_back,
    errors_that_last_end_the_campaign,
    crowd_of_candidates_does_not_ask_at_the_same_moment,
];

// Where time is real, one would take minutes, and a lease would end before the first look.
mod on_paused_time {
    use super::{
        candidate_of_a_client_with_another_identity_looks_at_the_key,
        candidate_that_may_not_count_the_others_asks_once,
    };

    on_memory![
        candidate_of_a_client_with_another_identity_looks_at_the_key,
        candidate_that_may_not_count_the_others_asks_once,
    ];
}
