//! The guards of one Redlock's hold, and the parts of the hold that each of them has.
//!
//! A guard that was made inside another one has a share of each part for itself, so the guards may end in any order. A part that
//! one guard has and another one lacks is shared with it: the hold has come back to a server meanwhile.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use uuid::Uuid;

use crate::clock::Tick;
use crate::hold::{Hold, HoldRef, HoldView, QuorumMembers, Term};
use crate::local::{HoldShare, HoldShares, ShareRef};
use crate::sync::{Mutex, foreign};

/// For the client of each server, the part of its lease that a guard sets aside for clocks that drift.
pub(super) type Margins = Arc<[(Uuid, Duration)]>;

/// The guards that have not ended, in the order in which they began.
pub(super) struct QuorumGuards {
    quorum: usize,
    guards: Mutex<Vec<GuardParts>>,
}

/// The parts of one guard. There is at least one.
pub(super) struct GuardParts {
    pub(super) shares: HoldShares,
    /// The references in these shares, for views of the guard.
    pub(super) members: Arc<QuorumMembers>,
    pub(super) margins: Margins,
}

/// A guard that lacks a part, and what its share of the part must be like.
struct Lacking {
    members: Arc<QuorumMembers>,
    term: Term,
    margin: Duration,
}

impl QuorumGuards {
    pub(super) fn new(quorum: usize) -> Self {
        Self {
            quorum,
            guards: Mutex::default(),
        }
    }

    pub(super) fn view(&self, members: &Arc<QuorumMembers>) -> HoldView {
        HoldView::of_changing(members, self.quorum)
    }

    /// Adds a guard. It gets the parts that the others have and it has not.
    pub(super) fn add(&self, guard: GuardParts) {
        let missing = {
            let mut guards = self.guards.lock();
            let missing = guard.missing(&guards);
            guards.push(guard);
            missing
        };
        foreign::each(missing, |part| {
            self.share(&part);
            part.session().schedule_check(part.hold());
        });
    }

    /// Removes a guard. Returns its shares, which the caller ends, and whether it was the last guard.
    pub(super) fn remove(&self, members: &Arc<QuorumMembers>) -> (HoldShares, bool) {
        let mut guards = self.guards.lock();
        let at = guards.iter().position(|guard| guard.is(members));
        let shares = at.map(|at| guards.remove(at).shares);
        (shares.unwrap_or_default(), guards.is_empty())
    }

    /// The shares of a guard, without the mutex: what is done with them wakes the watchdog's task.
    pub(super) fn share_refs(&self, members: &Arc<QuorumMembers>) -> SmallVec<[ShareRef; 1]> {
        let guards = self.guards.lock();
        let guard = guards.iter().find(|guard| guard.is(members));
        let shares = guard.into_iter().flat_map(|guard| guard.shares.iter());
        shares.map(HoldShare::to_ref).collect()
    }

    /// Whether one of the guards holds the lock.
    pub(super) fn any_is_held(&self) -> bool {
        let guards = self.guards.lock();
        guards.iter().any(|guard| guard.is_held(self.quorum))
    }

    /// The part of the server of this client, if it is held.
    pub(super) fn part(&self, client: Uuid) -> Option<Arc<Hold>> {
        let guards = self.guards.lock();
        let mut parts = guards.iter().filter_map(|guard| guard.part(client));
        parts.next().map(|part| Arc::clone(part.hold_ref().hold()))
    }

    /// For how long the watchdog keeps the guards at most; `None` if it keeps none of them.
    pub(super) fn kept_for(&self) -> Option<Duration> {
        let guards = self.guards.lock();
        let kept = guards.iter().filter_map(GuardParts::kept_for);
        kept.max()
    }

    /// Gives a part that was granted again to all guards that hold the lock, in the place of the one that its server lost. If there is
    /// no such guard any more, the part is released.
    pub(super) fn put(&self, part: HoldShare) {
        // A rule of tests/model: fresh_part_of_a_hold_that_ended_is_released.
        part.has_guard();
        let hold_ref = Arc::clone(part.hold_ref());
        let taken_for = self.taken_for();
        // The key stays taken on this server for as long as on the others.
        hold_ref.hold().keep_for(hold_ref.now(), taken_for);
        let part_ref = part.to_ref();
        self.share(&part_ref);
        // A guard that began before the first of them had the part lacks it still.
        self.share(&part_ref);
        drop(part);
        part_ref.session().schedule_check(hold_ref.hold());
    }

    /// For how long the key stays taken on the servers, even if the guards end earlier.
    fn taken_for(&self) -> Duration {
        let guards = self.guards.lock();
        let shares = guards.iter().flat_map(|guard| guard.shares.iter());
        let taken_for = shares.map(|share| {
            let hold_ref = share.hold_ref();
            let taken_until = hold_ref.hold().at_release().taken_until;
            taken_until.left(hold_ref.now())
        });
        taken_for.max().unwrap_or_default()
    }

    /// Gives each guard that lacks this part a share of it.
    fn share(&self, part: &ShareRef) {
        // Each of them, whatever the wakers of the others do.
        foreign::each(self.lacking(part), |lacking| {
            // A guard that has ended in the meantime needs none, and a part that is lost is of no use.
            if let Ok(share) = part.share_for(lacking.term, lacking.margin) {
                self.give(&lacking.members, share);
            }
        });
    }

    fn lacking(&self, part: &ShareRef) -> Vec<Lacking> {
        let (client, now) = (part.hold_ref().client(), part.session().now());
        let guards = self.guards.lock();
        let lacking = guards.iter().filter(|guard| guard.part(client).is_none());
        let lacking = lacking.map(|guard| guard.on_server(client, now));
        lacking.collect()
    }

    fn give(&self, members: &Arc<QuorumMembers>, mut share: HoldShare) {
        let hold_ref = Arc::clone(share.hold_ref());
        let client = hold_ref.client();
        let replaced = {
            let mut guards = self.guards.lock();
            // Under the mutex, so that the guard does not end between the check and the change.
            let guard = guards.iter_mut().find(|guard| {
                guard.is(members) && guard.part(client).is_none() && guard.is_held(self.quorum)
            });
            let Some(guard) = guard else {
                return;
            };
            match guard.on(client) {
                Some(old) => {
                    hold_ref.take_gate_of(old.hold_ref());
                    share.keep_gate_of(old);
                    Some(std::mem::replace(old, share))
                }
                None => {
                    guard.shares.push(share);
                    None
                }
            }
        };
        // Outside of the mutex, both: new members and the end of a share wake tasks.
        members.put(&hold_ref);
        drop(replaced);
    }
}

impl GuardParts {
    fn is(&self, members: &Arc<QuorumMembers>) -> bool {
        Arc::ptr_eq(&self.members, members)
    }

    fn is_held(&self, quorum: usize) -> bool {
        self.members.are_held(quorum)
    }

    /// The share of the server of this client.
    fn on(&mut self, client: Uuid) -> Option<&mut HoldShare> {
        let mut shares = self.shares.iter_mut();
        shares.find(|share| share.hold_ref().client() == client)
    }

    /// The same, if its hold is held and counts for this guard.
    fn part(&self, client: Uuid) -> Option<&HoldShare> {
        let mut shares = self.shares.iter();
        shares.find(|share| {
            let own = share.hold_ref();
            own.client() == client && counts(own)
        })
    }

    /// Parts of the others that this guard lacks, one for each server.
    fn missing(&self, others: &[Self]) -> Vec<ShareRef> {
        let clients = self.margins.iter().map(|(client, _)| *client);
        let lacked = clients.filter(|client| self.part(*client).is_none());
        let of_others = |client| others.iter().find_map(|other| other.part(client));
        lacked
            .filter_map(of_others)
            .map(HoldShare::to_ref)
            .collect()
    }

    /// The guard as it needs a part of the server of this client, whose clock shows `now`.
    fn on_server(&self, client: Uuid, now: Tick) -> Lacking {
        let end = || now.after(self.left_by_terms());
        let term = match self.shares[0].hold_ref().term() {
            Term::Kept => Term::Kept,
            Term::KeptUntil(_) => Term::KeptUntil(end()),
            Term::Until(_) => Term::Until(end()),
            Term::UntilLimit(_) => Term::UntilLimit(end()),
        };
        let mut margins = self.margins.iter();
        let margin = margins.find(|(other, _)| *other == client);
        Lacking {
            members: Arc::clone(&self.members),
            term,
            margin: margin.map(|(_, margin)| *margin).unwrap_or_default(),
        }
    }

    /// For how long the watchdog keeps the guard at most; `None` if the guard has a lease of its own.
    fn kept_for(&self) -> Option<Duration> {
        match self.shares[0].hold_ref().term() {
            Term::Kept => Some(Duration::MAX),
            Term::KeptUntil(_) => Some(self.left_by_terms()),
            Term::Until(_) | Term::UntilLimit(_) => None,
        }
    }

    /// How long the limit of the guard allows it to hold the lock. Each of its clients has a clock of its own. A part that is lost was not
    /// extended with the others.
    fn left_by_terms(&self) -> Duration {
        let own = self.shares.iter().map(HoldShare::hold_ref);
        let left = own
            .filter(|own| counts(own))
            .map(|own| own.term().end().left(own.now()));
        left.min().unwrap_or_default()
    }
}

/// Whether the hold is held, and the guard's own limit is not over.
fn counts(own: &Arc<HoldRef>) -> bool {
    let now = own.now();
    own.hold().is_held(now) && !own.term().has_ended(now)
}
