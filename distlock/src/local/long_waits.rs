//! Counts the acquisitions that wait, and reports waits that are probably mistakes: cycles, and a task that waits for itself.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::registry::Registry;
use super::waits::limits::WaiterSlot;
use super::waits::runner::Runner;
use super::waits::{LongWait, Wait, Waits, describe};
use crate::backend::Target;
use crate::clock::Tick;
use crate::config::{CYCLES_AFTER, HOLDERS_TOLD, LONG_WAITS_PAUSE, LONG_WAITS_TOLD, MaxWaiters};
use crate::error::Error;
use crate::hold::Hold;
use crate::resource::key::Resource;
use crate::resource::kind::Family;
use crate::resource::owner::Owner;
use crate::session::Session;
use crate::sync::task::boxed;
use crate::telemetry::{self, Meter};

impl Registry {
    /// Counts an acquisition that has to wait for this resource. `is_first`: whether others already wait behind it, so that the
    /// limits do not apply to it.
    ///
    /// # Errors
    /// [`Error::Overloaded`] if the key or the client has reached its limit of waiters.
    pub(crate) fn count_as_waiter(
        &self,
        wait: Wait,
        resource: &Resource,
        meter: Meter,
        max_waiters: MaxWaiters,
        is_first: impl FnOnce() -> bool,
    ) -> Result<WaiterSlot, Error> {
        let due = wait.due;
        let is_inside = !wait.inside.is_empty();
        let call_site = wait.call_site;
        self.tell_if_for_itself(&wait);
        let joined = self.limits.join(wait, max_waiters, is_first);
        let mut slot = joined.map_err(|waiters| Error::Overloaded {
            key: resource.key.text().to_owned(),
            waiters,
        })?;
        #[cfg(feature = "testing")]
        {
            let session = &self.session;
            slot.show(
                session
                    .backend
                    .show_wait(&resource.key, session.id, Some(call_site)),
            );
        }
        telemetry::waits(resource, call_site);
        slot.count(meter.waiter());
        // Only a wait inside of a hold can belong to a cycle.
        let searched = if is_inside {
            self.session.now().after(CYCLES_AFTER)
        } else {
            Tick::NEVER
        };
        self.session.watchdog.log_long_waits_by(due.min(searched));
        Ok(slot)
    }

    /// Reports new cycles of waits. One search serves all waits that began since the last one, so its time grows with the number
    /// of waits and not with its square.
    fn tell_cycles(&self) {
        let Some((waits, new)) = self.limits.take_unsearched() else {
            return;
        };
        let first_new = waits.len() - new;
        let waits: Waits = waits.into_iter().collect();
        let mut holders: HashMap<&Resource, Option<Owner>, RandomState> = HashMap::default();
        let entries = self.entries.lock();
        for resource in waits.iter().flat_map(|wait| &wait.resources) {
            holders.entry(resource).or_insert_with(|| {
                let mut held = self.used_kinds.same_data(resource);
                let held = held.find_map(|held| entries.get(&held)?.holder.as_ref());
                held.map(|holder| holder.hold.owner())
            });
        }
        // The log below is foreign code, which never runs under this mutex.
        drop(entries);
        let holder_of = |resource: &Resource| holders.get(resource).copied().flatten();
        for cycle in waits.new_cycles(first_new, holder_of) {
            if let Some(wait) = cycle.first() {
                let key = &wait.resources[wait.at].key;
                telemetry::waits_in_a_cycle(key, &describe(&cycle));
            }
        }
    }

    /// Reports a wait for a hold of the same task, once for each pair of lines. A limit of the wait changes nothing: the
    /// time is lost, and the error looks like that of a busy key.
    fn tell_if_for_itself(&self, wait: &Wait) {
        let Some(runner) = Runner::current() else {
            return;
        };
        let own = |resource| {
            let sole = self.taken_by(runner, resource);
            let shared = || {
                let watchdog = &self.session.watchdog;
                self.shared_holds.hold_of(runner, resource, wait, watchdog)
            };
            let taken = sole.or_else(shared)?;
            Some((resource, taken))
        };
        let Some((own, taken)) = wait.resources.iter().find_map(own) else {
            return;
        };
        let taken_at = taken.latest_guard().call_site;
        // The mutex is free again behind the condition: the log below is foreign code.
        if self
            .told_for_itself
            .lock()
            .insert([taken_at, wait.call_site])
        {
            let nesting = own.kind.within(taken.resource.kind);
            telemetry::waits_for_itself(&own.key, nesting, taken_at, wait.call_site);
        }
    }

    /// The hold of this task that excludes others from the key's data, under any kind, and not in a scope. A hold in a scope
    /// belongs to another branch of the task, or the acquisition would have found it.
    fn taken_by(&self, runner: Runner, resource: &Resource) -> Option<Arc<Hold>> {
        let entries = self.entries.lock();
        let mut held = self
            .used_kinds
            .same_data(resource)
            .filter_map(|held| entries.get(&held)?.holder.as_ref());
        let own = held.find(|holder| {
            // Without a guard it is on its way back to the server.
            holder.runner == Some(runner)
                && !holder.hold.in_a_scope.is_set()
                && holder.hold.count() > 0
        })?;
        Some(Arc::clone(&own.hold))
    }

    /// Logs the waits that have become long, from a separate task, which asks the server who holds the keys. Returns when to
    /// look again.
    pub(super) fn tell_waits(&self) -> Tick {
        self.tell_cycles();
        let now = self.session.now();
        let pause = LONG_WAITS_PAUSE.min(self.session.config.warn_after / 10);
        let (long, next) = self.limits.take_due(now, pause);
        if !long.is_empty() {
            let session = Arc::clone(&self.session);
            // Dropping the handle does not end the task.
            drop(crate::sync::task::spawn(boxed(tell(session, long, now))));
        }
        next
    }
}

/// Writes to the log which keys are waited for, and who holds them.
async fn tell(session: Arc<Session>, long: Vec<LongWait>, now: Tick) {
    let more = long.len().saturating_sub(LONG_WAITS_TOLD);
    for wait in long.into_iter().take(LONG_WAITS_TOLD) {
        if is_unset(&session, &wait.resource).await {
            let waited = now.since(wait.since);
            telemetry::waits_for_unset_permits(
                &wait.resource.key,
                waited,
                wait.waiters,
                wait.call_site,
            );
            continue;
        }
        // Without an answer the wait is logged all the same, without its holders.
        let inspected = session.backend.inspect(&wait.resource).await.ok();
        let lease_left = inspected.as_ref().and_then(|inspected| inspected.ttl);
        let holders = inspected.iter().flat_map(|inspected| &inspected.holders);
        let holders: Vec<String> = holders
            .take(HOLDERS_TOLD)
            .map(|(owner, _)| String::from_utf8_lossy(owner).into_owned())
            .collect();
        let waited = now.since(wait.since);
        let LongWait {
            resource,
            call_site,
            waiters,
            ..
        } = wait;
        telemetry::waits_long(
            &resource.key,
            waited,
            waiters,
            call_site,
            &holders,
            lease_left,
        );
    }
    if more > 0 {
        telemetry::more_long_waits(more);
    }
}

/// Whether the server says that nobody has set the permits of a semaphore.
async fn is_unset(session: &Arc<Session>, resource: &Resource) -> bool {
    if !matches!(resource.kind.family(), Family::Semaphore | Family::Permit) {
        return false;
    }
    let mut target = Target::of(resource, session.owners.next());
    // More than a semaphore can have, so that an attempt for them is worth while only if there is none.
    target.permits = u32::MAX;
    let looked = session.peek(target).await;
    looked.is_some_and(|looked| looked.is_open)
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;
    use crate::Client;
    use crate::local::waits::cycles::STEPS;

    #[tokio::test(start_paused = true)]
    async fn long_chain_of_nested_waits_is_searched_in_a_time_that_grows_with_its_length() {
        const MANY: usize = 500;
        let client = Client::in_memory();
        let lock = |n: usize| client.lock(n.to_string());
        let mut guards = Vec::new();
        for n in 0..=MANY {
            guards.push(lock(n).acquire().await.unwrap());
        }
        let last = guards.pop().unwrap();
        let mut tasks = JoinSet::new();
        let before = STEPS.get();
        // From its end, so that each new wait leads to all before it.
        for (n, guard) in guards.into_iter().enumerate().rev() {
            let inner = lock(n + 1).acquire();
            tasks.spawn(async move { guard.scope(inner.into_future()).await.map(drop) });
            tokio::task::yield_now().await;
        }
        assert_eq!(client.snapshot().waits.len(), MANY);
        let of_snapshot = STEPS.get() - before;
        tokio::time::sleep(2 * CYCLES_AFTER).await;
        let steps = STEPS.get() - before - of_snapshot;
        assert!((MANY..=8 * MANY).contains(&steps), "{steps} steps");
        last.release().await.unwrap();
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap().unwrap();
        }
    }
}
