//! The reads of keys: those under way, and those that wait for a place at their server.
//!
//! A server that does not answer delays no read of another one, and a key that is refused fails no read of another key.

use std::sync::Arc;

use super::plan::{Name, Numbers, Outcome};
use crate::backend::{Home, Target};
use crate::config::{RENEWAL_BATCH, RENEWALS_AT_ONCE};
use crate::hold::{Hold, Lease};
use crate::session::Session;
use crate::session::per_server::PerServer;
use crate::sync::{Semaphore, Unordered, all, foreign};

/// Keys of one server, with the owners that have them.
type Batch = Vec<(Name, Numbers)>;

/// The reads of one client.
pub(super) struct Reads<'a> {
    /// A server that does not answer keeps its own places and no others.
    places: PerServer<Semaphore>,
    under_way: Unordered<'a, ()>,
}

impl<'a> Reads<'a> {
    pub(super) fn new() -> Self {
        Self {
            places: PerServer::new(|| Semaphore::new(RENEWALS_AT_ONCE)),
            under_way: Unordered::default(),
        }
    }

    /// Begins the reads of these keys, or has them wait for a place.
    pub(super) fn begin(&mut self, session: &'a Arc<Session>, keys: Batch) {
        let home = |(name, numbers): (Name, Numbers)| {
            let mut holds = numbers
                .iter()
                .filter_map(|number| session.watchdog.find(*number));
            let hold = holds.next();
            // All its holds have gone: the read asks nothing, and its end removes the key from the plan.
            let home = hold.map_or_else(Home::default, |hold| {
                session.backend.home(&hold.resource.key)
            });
            (home.of_server(), (name, numbers))
        };
        for (Home { server, .. }, mut batch) in Home::group(keys.into_iter().map(home)) {
            let places = self.places.of(server);
            let mut begin = |batch| {
                let places = Arc::clone(&places);
                self.under_way.push(async move {
                    let _place = places.acquire().await;
                    read(session, batch).await;
                });
            };
            while batch.len() > RENEWAL_BATCH {
                let rest = batch.split_off(RENEWAL_BATCH);
                begin(std::mem::replace(&mut batch, rest));
            }
            begin(batch);
        }
    }

    /// Completes with the end of a read; `None` if none is under way.
    pub(super) async fn next(&mut self) -> Option<()> {
        self.under_way.next().await
    }
}

/// Reads keys of one server, and declares the holds lost that are not there any more.
async fn read(session: &Arc<Session>, batch: Batch) {
    let held = |(name, numbers): (Name, Numbers)| {
        let numbers = numbers.into_iter();
        let holds = numbers.filter_map(|number| session.watchdog.find(number));
        let holds: Vec<Arc<Hold>> = holds.collect();
        let home = holds.first().map_or_else(Home::default, |hold| {
            session.backend.home(&hold.resource.key)
        });
        (home, (name, holds))
    };
    // The keys of a cluster lie in many slots, and one command has the keys of one.
    let by_slot = Home::group(batch.into_iter().map(held));
    all(by_slot.iter().map(|(_, keys)| read_slot(session, keys))).await;
}

/// Reads keys of one slot. They do not wait for those of other slots: one that moves between nodes takes seconds.
async fn read_slot(session: &Arc<Session>, keys: &[(Name, Vec<Arc<Hold>>)]) {
    let holds: Vec<Arc<Hold>> = keys
        .iter()
        .flat_map(|(_, holds)| holds)
        .map(Arc::clone)
        .collect();
    let mut outcomes = Vec::with_capacity(holds.len());
    for holds in holds.chunks(RENEWAL_BATCH) {
        outcomes.extend(read_each(session, holds).await);
    }
    let now = session.now();
    let is_watched = |number| session.watchdog.has(number);
    let mut outcomes = outcomes.into_iter();
    let mut is_due = false;
    let mut plan = session.tracking.plan.lock();
    for (name, holds) in keys {
        let of_key = outcomes.by_ref().take(holds.len());
        let outcome = of_key.max().unwrap_or(Outcome::Read);
        is_due |= plan.was_read(name, now, outcome, is_watched);
    }
    drop(plan);
    if is_due {
        foreign::notify_own_task(&session.tracking.wake);
    }
}

/// Reads holds by one command. If the server refuses that, the reason may be a single one of them, such as a key that the user
/// may no longer access. Each of them is then read alone.
async fn read_each(session: &Arc<Session>, holds: &[Arc<Hold>]) -> Vec<Outcome> {
    let outcome = read_together(session, holds).await;
    if outcome != Outcome::Refused || holds.len() == 1 {
        return vec![outcome; holds.len()];
    }
    let mut outcomes = Vec::with_capacity(holds.len());
    for some in holds.chunks(RENEWALS_AT_ONCE) {
        let alone = some.chunks(1).map(|one| read_together(session, one));
        outcomes.extend(all(alone).await);
    }
    outcomes
}

/// Reads holds by one command, and declares those lost that are not there any more.
async fn read_together(session: &Arc<Session>, holds: &[Arc<Hold>]) -> Outcome {
    let targets: Vec<Target> = holds.iter().map(|hold| hold.target()).collect();
    // Before the read is sent, so that the loss was found over this connection or a later one.
    let epochs: Vec<u64> = holds
        .iter()
        .map(|hold| session.backend.epoch(&hold.resource.key))
        .collect();
    let ours = match session.backend.track(&targets).await {
        Ok(Some(ours)) => ours,
        Ok(None) => return Outcome::NotAsked,
        Err(fault) if fault.is_final() => return Outcome::Refused,
        Err(_) => return Outcome::NoAnswer,
    };
    let lost = holds.iter().zip(epochs).zip(ours).filter(|(_, ours)| !ours);
    foreign::each(lost, |((hold, epoch), _)| {
        if let Some(loss) = hold.with_lease(Lease::gone) {
            // Only the first to find the loss declares it: a renewal may have found it as well.
            session.lose(hold, loss, epoch);
        }
    });
    Outcome::Read
}
