//! The watch of one key.

use std::sync::Arc;

use super::keys::{FreeAnswer, Round, SeenHolder, Waiter};
use crate::backend::{Fault, Inspected, Peeked, Subscription, Target};
use crate::clock::Tick;
use crate::error::HeldBy;
use crate::resource::key::Resource;
use crate::resource::kind::Kind;
use crate::resource::owner::Owner;
use crate::session::{Retry, Session, next_peek, over_at};

/// What a look has found.
pub(crate) enum Looked {
    Free,
    /// Without holders if they are the readers of a lock that was looked at as [`Kind::Write`].
    Held(Inspected),
}

/// The only owner that a look has seen, and for whom that look was.
struct SeenOwner {
    name: Vec<u8>,
    below: u64,
}

/// The watch of a key: what it has seen, and what it listens to.
struct Watch<'a> {
    session: &'a Arc<Session>,
    target: Target,
    subscription: Option<Subscription>,
    /// The looks in a row that were not answered.
    unanswered: Option<Retry>,
    seen: Option<SeenOwner>,
}

/// Watches a key while somebody waits for it. Returns the key.
pub(super) async fn until_nobody_waits(session: &Arc<Session>, resource: Resource) -> Resource {
    let mut watch = Watch {
        session,
        target: Target::of(&resource, session.owners.next()),
        subscription: None,
        unanswered: None,
        seen: None,
    };
    while let Some(round) = session.free.begin(&resource) {
        watch.play(&round).await;
    }
    resource
}

impl Watch<'_> {
    /// Looks once, and sleeps until the next look makes sense.
    async fn play(&mut self, round: &Round) {
        if let Some(subscription) = &mut self.subscription {
            // Before the look, so that a message that arrives meanwhile counts as new.
            subscription.mark_seen();
        }
        let was_active = self
            .subscription
            .as_ref()
            .is_some_and(Subscription::is_active);
        let sent = self.session.now();
        let latest = match &self.unanswered {
            Some(retry) => retry.latest(self.give_up_at(retry, round.first_since)),
            None => Tick::NEVER,
        };
        let looked = crate::sync::select! {
            // In this order: an answer that has arrived counts, even if the time is over.
            biased;
            looked = look(self.session, &self.target.resource) => looked,
            () = self.session.clock.sleep_until(latest) => {
                Err(self.unanswered.get_or_insert_with(|| Retry::new(self.session, sent)).no_answer())
            }
        };
        match looked {
            Ok(Looked::Free) => {
                // For those that have come during the look.
                self.unanswered = None;
                let resource = &self.target.resource;
                self.session.free.note(resource, |key| key.failed = None);
                self.answer(round, |_| true, || FreeAnswer::Free);
            }
            Ok(Looked::Held(found)) => self.held(round, found, was_active).await,
            Err(fault) if fault.is_final() => {
                self.answer(round, |_| true, || FreeAnswer::Failed(fault.clone()));
            }
            Err(fault) => self.failed(round, sent, fault).await,
        }
    }

    fn answer(
        &self,
        round: &Round,
        is_meant: impl Fn(&Waiter) -> bool,
        answer: impl Fn() -> FreeAnswer,
    ) {
        let free = &self.session.free;
        free.answer(&self.target.resource, round.below, is_meant, answer);
    }

    /// When a waiter gives up that has waited since this time, if the server does not answer.
    fn give_up_at(&self, retry: &Retry, since: Tick) -> Tick {
        retry
            .since
            .max(since)
            .after(self.session.config.unavailable_after)
    }

    /// Somebody holds the key.
    async fn held(&mut self, round: &Round, found: Inspected, was_active: bool) {
        self.unanswered = None;
        self.note_owner(round, &found);
        let now = self.session.now();
        let until = found.ttl.map(|ttl| now.after(ttl));
        let others = found.holders.len().saturating_sub(1) as u64;
        let first = found.holders.first();
        let owner = first.and_then(|(name, _)| Owner::of_text(name));
        let holder = owner.map(|owner| Box::new(HeldBy::new(owner.text(), others)));
        let (free, resource) = (&self.session.free, &self.target.resource);
        let seen = SeenHolder { until, holder };
        free.note(resource, |key| {
            (key.seen, key.failed) = (Some(seen.clone()), None);
        });
        let held = || FreeAnswer::Held(seen.clone());
        self.answer(round, |waiter| waiter.looks_once, held);
        self.sleep(round, over_at(found.ttl, now), was_active).await;
    }

    /// If the key has another owner than the last look has seen, it was free in between. Readers follow each other without that, and
    /// are not among the holders that were found.
    fn note_owner(&mut self, round: &Round, found: &Inspected) {
        let [(name, _)] = &found.holders[..] else {
            self.seen = None;
            return;
        };
        let name = owner(name).to_vec();
        if let Some(before) = self.seen.take_if(|before| before.name != name) {
            let (free, resource) = (&self.session.free, &self.target.resource);
            free.answer(resource, before.below, |_| true, || FreeAnswer::Free);
        }
        self.seen = Some(SeenOwner {
            name,
            below: round.below,
        });
    }

    /// The server did not answer a look that was sent at `sent`.
    async fn failed(&mut self, round: &Round, sent: Tick, fault: Fault) {
        let (session, resource) = (self.session, &self.target.resource);
        // What was seen before an outage says nothing of the owners after it.
        self.seen = None;
        let failed = Some(fault.clone());
        session.free.note(resource, |key| key.failed = failed);
        let retry = self
            .unanswered
            .get_or_insert_with(|| Retry::new(session, sent));
        let pause = retry.failed(fault.clone());
        let since = retry.since;
        let give_up_after = session.config.unavailable_after;
        let now = session.now();
        let gives_up = |waiter: &Waiter| {
            waiter.looks_once || since.max(waiter.since).after(give_up_after) <= now
        };
        self.answer(round, gives_up, || FreeAnswer::Failed(fault.clone()));
        let Some(next) = session.free.begin(resource) else {
            return;
        };
        let until = now
            .after(pause)
            .min(since.max(next.first_since).after(give_up_after));
        crate::sync::select! {
            () = round.wake.notified() => {}
            () = session.clock.sleep_until(until) => {}
        }
    }

    /// Sleeps until the key may be free. A watch that gets no message for some time looks together with the other waiters of
    /// its client, and goes on sleeping while the key is held.
    async fn sleep(&mut self, round: &Round, mut lease_end: Tick, was_active: bool) {
        let (session, target) = (self.session, &self.target);
        let subscription = self
            .subscription
            .get_or_insert_with(|| session.backend.subscribe(target));
        loop {
            let seen = crate::sync::select! {
                // In this order: a new waiter and a message lead to a look that reads more than this one.
                biased;
                () = round.wake.notified() => return,
                () = subscription.changed(was_active) => return,
                seen = next_peek(session, || target.clone(), lease_end, was_active) => seen,
            };
            // Without an answer it looks alone, and learns why that fails.
            let Some(Peeked { ttl, .. }) = seen else {
                return;
            };
            let now = session.now();
            lease_end = over_at(ttl, now);
            session.free.note(&target.resource, |key| {
                key.failed = None;
                if let Some(seen) = &mut key.seen {
                    seen.until = ttl.map(|ttl| now.after(ttl));
                }
            });
        }
    }
}

/// Whether anybody holds a key. The key of a write lock may also be held by readers.
pub(crate) async fn look(session: &Session, resource: &Resource) -> Result<Looked, Fault> {
    let backend = &session.backend;
    if resource.kind == Kind::Write {
        // An inspection covers one side of the lock only. The key is what is peeked at, and the owner does not matter.
        let target = Target::of(resource, Owner::new(session.id, 0));
        let seen = backend.peek(std::slice::from_ref(&target)).await?;
        if seen.iter().all(|seen| seen.is_open) {
            return Ok(Looked::Free);
        }
        let ttl = seen.first().and_then(|seen| seen.ttl);
        let writer = backend.inspect(resource).await?;
        return Ok(Looked::Held(Inspected { ttl, ..writer }));
    }
    let found = backend.inspect(resource).await?;
    Ok(if found.holders.is_empty() {
        Looked::Free
    } else {
        Looked::Held(found)
    })
}

/// The owner of a field. One whose lock stays taken for a while after its hold has another field than before.
fn owner(name: &[u8]) -> &[u8] {
    name.strip_suffix(b":rest").unwrap_or(name)
}
