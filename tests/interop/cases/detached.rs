//! Detached holds of distlock: for Redisson they are holds as any others, before and after they are attached.

use distlock_interop::{Actor, Call, Grant, Kind, Side};

use crate::case::{Case, cases};
use crate::stage::{Lock, Stage, assert_by_message, assert_soon};
use crate::table::Row;

const KINDS: [Kind; 6] = [
    Kind::Reentrant,
    Kind::NonReentrant,
    Kind::Spin,
    Kind::Fenced,
    Kind::Fair,
    Kind::NonReentrantFair,
];

/// The lease of what nobody attaches.
const LEASE: u64 = 1_500;

/// A request and a worker in two processes of distlock, and a thread of Java.
struct Parts {
    stage: Stage,
    lock: Lock,
    web: Actor,
    worker: Actor,
    java: Actor,
}

impl Parts {
    async fn of(stage: Stage) -> Self {
        let programs = stage.programs(stage.holder, 2).await;
        let [web, worker] =
            [0, 1].map(|number: usize| programs[number].actor(format!("{} {number}", stage.name)));
        Self {
            lock: stage.lock(),
            web,
            worker,
            java: stage.waiter("w").await,
            stage,
        }
    }

    fn call(&self, op: &str) -> Call {
        Call::new(op, self.lock.0, &self.lock.1)
    }

    /// Ends the guard of the request, and leaves its hold.
    async fn detach(&self, grant: &Grant) -> String {
        let mut call = self.call("detach");
        call.permit.clone_from(&grant.permit);
        self.web.call(call).value().await
    }

    /// The worker takes the hold over, if it is still there.
    async fn attach(&self, text: &str) -> Option<Grant> {
        let call = self.call("attach").detached(text);
        self.worker.call(call).grant().await
    }

    /// The worker releases the hold by its text. Returns false if it was not there any more, and when the call began.
    async fn release_detached(&self, text: &str) -> (bool, u64) {
        let call = self.call("release_detached").detached(text);
        let released = self.worker.call(call).timed::<bool>().await;
        (released.value, released.began)
    }

    /// The hold was attached or released, so neither works once more.
    async fn is_gone(&self, text: &str) {
        assert!(self.attach(text).await.is_none(), "attached once more");
        let (released, _) = self.release_detached(text).await;
        assert!(!released, "released once more");
    }

    /// What a thread of Java that does not hold the lock sees of a hold with most of its lease.
    async fn java_sees_a_hold(&self) {
        assert!(self.java.ask::<bool>("is_locked", &self.lock).await);
        let left: i64 = self.java.ask("remaining_lease", &self.lock).await;
        assert!((10_000..=30_000).contains(&left), "{left} ms are left");
        assert_eq!(self.java.ask::<u64>("hold_count", &self.lock).await, 0);
        self.java_is_refused().await;
    }

    async fn java_is_refused(&self) {
        let taken = self.java.try_take(&self.lock).await;
        assert!(taken.is_none(), "held twice");
    }

    /// Java holds it, and distlock does not get it.
    async fn java_holds(&self) {
        assert!(self.web.try_take(&self.lock).await.is_none(), "held twice");
    }
}

async fn detached_hold_goes_on_in_another_process_and_java_gets_it_after_that(stage: Stage) {
    let parts = Parts::of(stage).await;
    let (stage, lock, java) = (&parts.stage, &parts.lock, &parts.java);
    let grant = parts.web.take(lock).await;
    let text = parts.detach(&grant).await;
    parts.java_sees_a_hold().await;
    let attached = parts.attach(&text).await.expect("the hold");
    assert_ne!(attached.owner, grant.owner);
    assert_eq!(attached.token, grant.token);
    parts.java_sees_a_hold().await;
    let waiting = java.acquire(lock, None);
    stage.until_asleep(java, lock).await;
    parts.is_gone(&text).await;
    assert!(!waiting.is_answered(), "held twice");
    let released = parts.worker.release(lock).timed::<bool>().await;
    let granted = waiting.granted().await;
    assert!(granted.ended > released.began, "granted before the release");
    assert_by_message("the wake-up", released.began, granted.ended);
    assert!(granted.value.token >= attached.token.map(|token| token + 1));
    parts.is_gone(&text).await;
    parts.java_holds().await;
    java.release(lock).value::<bool>().await;
}

async fn detached_hold_that_is_released_by_its_text_wakes_java(stage: Stage) {
    let parts = Parts::of(stage).await;
    let (stage, lock, java) = (&parts.stage, &parts.lock, &parts.java);
    let grant = parts.web.take(lock).await;
    let text = parts.detach(&grant).await;
    let waiting = java.acquire(lock, None);
    stage.until_asleep(java, lock).await;
    assert!(!waiting.is_answered(), "held twice");
    let (is_released, began) = parts.release_detached(&text).await;
    assert!(is_released, "it was not there");
    let granted = waiting.granted().await;
    assert_by_message("the wake-up", began, granted.ended);
    parts.is_gone(&text).await;
    parts.java_holds().await;
    java.release(lock).value::<bool>().await;
}

async fn detached_hold_that_nobody_attaches_ends_with_its_lease_and_is_java_s(stage: Stage) {
    let parts = Parts::of(stage).await;
    let (stage, lock, java) = (&parts.stage, &parts.lock, &parts.java);
    let acquire = parts.call("acquire").wait(0).lease(LEASE);
    let held = parts.web.call(acquire).granted().await;
    let text = parts.detach(&held.value).await;
    let waiting = java.acquire(lock, stage.wait_for_a_lease());
    let granted = stage.granted_at(java, lock, waiting).await;
    let ends = held.began + LEASE * 1_000_000;
    assert!(granted >= ends, "granted within the lease");
    assert_soon("the grant", ends, granted);
    parts.is_gone(&text).await;
    parts.java_holds().await;
    java.release(lock).value::<bool>().await;
}

/// `attach` does not stand in the queue, and passes nobody who does.
async fn queue_of_both_sides_goes_on_behind_a_detached_hold(stage: Stage) {
    let parts = Parts::of(stage).await;
    let (stage, lock, java) = (&parts.stage, &parts.lock, &parts.java);
    let grant = parts.web.take(lock).await;
    let text = parts.detach(&grant).await;
    let first = java.acquire(lock, None);
    stage.until_queue_has(1).await;
    let second = parts.web.acquire(lock, None);
    stage.until_queue_has(2).await;
    parts.attach(&text).await.expect("the hold");
    stage.until_queue_has(2).await;
    assert!(!first.is_answered() && !second.is_answered(), "held twice");
    let released = parts.worker.release(lock).timed::<bool>().await;
    let granted = first.granted().await;
    assert_soon("the grant", released.began, granted.ended);
    assert!(!second.is_answered(), "{} was passed", parts.java);
    java.release(lock).value::<bool>().await;
    second.granted().await;
    parts.web.release(lock).value::<bool>().await;
}

async fn detached_permit_goes_on_in_another_process_and_java_gets_it_after_that(stage: Stage) {
    let parts = Parts::of(stage).await;
    let (stage, lock, java) = (&parts.stage, &parts.lock, &parts.java);
    assert!(parts.web.count::<bool>("set_permits", lock, 2).await);
    let grant = parts.web.take(lock).await;
    let text = parts.detach(&grant).await;
    assert_eq!(java.ask::<i64>("available", lock).await, 1);
    let other = java.take(lock).await;
    parts.java_is_refused().await;
    let attached = parts.attach(&text).await.expect("the permit");
    assert_ne!(attached.permit, grant.permit);
    assert_eq!(java.ask::<i64>("available", lock).await, 0);
    parts.is_gone(&text).await;
    // The id of the request is nobody's any more. Redisson before 3.17 has another text for an id.
    if parts.java.peer().side() != Side::Java(Side::versions()[1]) {
        let late = java.give_back(lock, grant.permit.clone());
        assert!(!late.value::<bool>().await, "released by its former id");
    }
    let second = stage.waiter("w2").await;
    let waiting = second.acquire(lock, None);
    stage.until_asleep(&second, lock).await;
    assert!(!waiting.is_answered(), "a third permit of two");
    let released = parts.worker.give_back(lock, attached.permit);
    let released = released.timed::<bool>().await;
    let granted = waiting.granted().await;
    assert_by_message("the wake-up", released.began, granted.ended);
    for permit in [other.permit, granted.value.permit] {
        assert!(java.give_back(lock, permit).value::<bool>().await);
    }
    assert_eq!(java.ask::<i64>("available", lock).await, 2);
}

async fn detached_permit_is_java_s_after_a_release_by_its_text_or_the_end_of_its_lease(
    stage: Stage,
) {
    let parts = Parts::of(stage).await;
    let (stage, lock, java) = (&parts.stage, &parts.lock, &parts.java);
    assert!(parts.web.count::<bool>("set_permits", lock, 1).await);
    let grant = parts.web.take(lock).await;
    let text = parts.detach(&grant).await;
    let waiting = java.acquire(lock, None);
    stage.until_asleep(java, lock).await;
    let (is_released, began) = parts.release_detached(&text).await;
    assert!(is_released, "it was not there");
    let granted = waiting.granted().await;
    assert_by_message("the wake-up", began, granted.ended);
    parts.is_gone(&text).await;
    assert_eq!(java.ask::<i64>("available", lock).await, 0);
    let given_back = java.give_back(lock, granted.value.permit);
    assert!(given_back.value::<bool>().await);

    let acquire = parts.call("acquire").wait(0).lease(LEASE);
    let held = parts.web.call(acquire).granted().await;
    let text = parts.detach(&held.value).await;
    let granted = java.acquire(lock, None).granted().await;
    let ends = held.began + LEASE * 1_000_000;
    assert!(
        granted.ended + 5_000_000 >= ends,
        "granted within the lease"
    );
    assert_soon("the grant", ends, granted.ended);
    parts.is_gone(&text).await;
    assert_eq!(java.ask::<i64>("available", lock).await, 0);
    let given_back = java.give_back(lock, granted.value.permit);
    assert!(given_back.value::<bool>().await);
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for kind in KINDS {
        cases.extend(cases![Row::Detached, kind;
            detached_hold_goes_on_in_another_process_and_java_gets_it_after_that,
            detached_hold_that_is_released_by_its_text_wakes_java,
            detached_hold_that_nobody_attaches_ends_with_its_lease_and_is_java_s,
        ]);
    }
    for kind in [Kind::Fair, Kind::NonReentrantFair] {
        cases.extend(cases![Row::Detached, kind;
            queue_of_both_sides_goes_on_behind_a_detached_hold
        ]);
    }
    cases.extend(cases![Row::Detached, Kind::Permit;
        detached_permit_goes_on_in_another_process_and_java_gets_it_after_that,
        detached_permit_is_java_s_after_a_release_by_its_text_or_the_end_of_its_lease,
    ]);
    // Only distlock detaches, so both directions are one.
    cases.into_iter().map(Case::symmetrical).collect()
}
