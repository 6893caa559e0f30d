//! The events of a history, grouped by acquisition.

use super::{Change, End, EventKind, Fault, Id, Refusal, Timestamp, Wiped};

/// One acquisition and what followed.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Whose it is.
    pub id: Id,
    /// Which lock.
    pub key: String,
    /// The other key of a multi-lock.
    pub other_key: Option<String>,
    /// How long it waits at most.
    pub wait: Option<Timestamp>,
    /// Its fixed lease.
    pub lease: Option<Timestamp>,
    /// Whether others of its kind may have the lock at the same time.
    pub shared: bool,
    /// Whether its hold ends with a lease.
    pub leased: bool,
    /// When it was called.
    pub called: Timestamp,
    /// The name of its hold in the server.
    pub owner: Option<String>,
    /// Its fencing token.
    pub token: Option<u64>,
    /// When its lease was last requested before the grant. An earlier wipe did not take this hold away.
    pub lease_requested: Timestamp,
    /// When its lease was last requested before its end, as far as the requests were answered. The server had the hold then.
    pub last_requested: Timestamp,
    /// The first grant of its hold, which others may have had before: from then on it was in the server.
    pub held_since: Timestamp,
    /// Since when it was not polled while it waited, and when it was polled again.
    pub unpolled: Option<(Timestamp, Option<Timestamp>)>,
    /// When it was answered or given up.
    pub returned: Option<Timestamp>,
    /// Whether it was granted.
    pub granted: bool,
    /// Why it was not.
    pub refused: Option<Refusal>,
    /// Whether the latch that it waited for released it.
    pub latch_opened: bool,
    /// Which change of a latch it is, and what was answered.
    pub change: Option<(Change, Option<u64>)>,
    /// The owner's own deadline, as it was known when it was granted.
    pub granted_until: Timestamp,
    /// The deadline as it was last known.
    pub deadline: Timestamp,
    /// How its fixed lease was extended last.
    pub extended: Option<Extension>,
    /// Whether it saw that.
    pub seen_free: bool,
    /// Whether its hold was detached.
    pub detached: bool,
    /// When others began to take over its detached hold, and when one of them had it or had released it.
    pub taken: Option<(Timestamp, Timestamp)>,
    /// The operation whose detached hold it takes over or releases.
    pub takes: Option<Id>,
    /// Whether it has released that.
    pub freed: bool,
    /// When the owner entered the resource.
    pub entered: Option<Timestamp>,
    /// When its write was answered, and whether it was accepted.
    pub wrote: Option<(Timestamp, bool)>,
    /// When the owner learned of a loss.
    pub loss_reported: Option<Timestamp>,
    /// When the owner began to release.
    pub ending: Option<Timestamp>,
    /// When and how the hold ended.
    pub ended: Option<(Timestamp, End)>,
    /// When its process was killed, if that ended it.
    pub killed: Option<Timestamp>,
    /// When its process was killed, also if it had ended by then.
    pub died: Option<Timestamp>,
}

/// How a fixed lease was extended.
#[derive(Clone, Copy, Debug)]
pub struct Extension {
    /// When it was asked for.
    pub asked: Timestamp,
    /// The lease that was asked for.
    pub lease: Timestamp,
    /// The owner's own deadline before that.
    pub before: Timestamp,
    /// The one after it.
    pub deadline: Timestamp,
}

/// A permit without a lease whose owner died. It is never returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeakedPermit {
    /// Its owner had it and died.
    Surely,
    /// Its owner died while it asked for it, or while it gave it back.
    Perhaps,
}

/// The time for which an owner was entitled to rely on its hold; the end is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The return of the acquisition.
    pub from: Timestamp,
    /// The first of: release called, loss told, deadline, data wiped; or process killed, but that gives back no permit
    /// that has no lease.
    pub to: Timestamp,
}

impl Claim {
    fn cut(&mut self, at: Option<Timestamp>) {
        if let Some(at) = at {
            self.to = self.to.min(at.max(self.from));
        }
    }
}

impl Operation {
    pub(super) fn new(id: Id, called: Timestamp) -> Self {
        Self {
            id,
            key: String::new(),
            other_key: None,
            wait: None,
            lease: None,
            shared: false,
            leased: true,
            called,
            owner: None,
            token: None,
            lease_requested: called,
            last_requested: called,
            held_since: Timestamp::MAX,
            unpolled: None,
            returned: None,
            granted: false,
            latch_opened: false,
            change: None,
            refused: None,
            granted_until: 0,
            deadline: 0,
            extended: None,
            seen_free: false,
            detached: false,
            taken: None,
            takes: None,
            freed: false,
            entered: None,
            wrote: None,
            loss_reported: None,
            ending: None,
            ended: None,
            killed: None,
            died: None,
        }
    }

    /// Whether its permit is lost for ever, and since when. The background work of the last `settle` before the death of its
    /// owner may not have been done.
    #[must_use]
    pub fn leaked_permit(&self, settle: Timestamp) -> Option<(Timestamp, LeakedPermit)> {
        let died = self.died.filter(|_| !self.leased)?;
        let done = match &self.ended {
            Some((_, End::Released)) => return None,
            Some((at, _)) => Some(*at),
            None => self.returned.filter(|_| !self.granted),
        };
        let leaked_permit = match done {
            Some(at) if at + settle < died => return None,
            None if self.granted && self.ending.is_none() => LeakedPermit::Surely,
            _ => LeakedPermit::Perhaps,
        };
        Some((died, leaked_permit))
    }

    /// Since when it was polled regularly until its answer; never, if it was not polled any more.
    #[must_use]
    pub fn polled_since(&self) -> Timestamp {
        match self.unpolled {
            None => self.called,
            Some((_, polled)) => polled.unwrap_or(Timestamp::MAX),
        }
    }

    /// Whether it waited and was not polled for some of the time between the two.
    #[must_use]
    pub fn was_unpolled(&self, from: Timestamp, to: Timestamp) -> bool {
        let until = |polled: Option<Timestamp>| polled.or(self.returned).unwrap_or(Timestamp::MAX);
        self.unpolled
            .is_some_and(|(since, polled)| since < to && until(polled) > from)
    }

    /// When it stopped waiting, or `end` where it never did.
    #[must_use]
    pub fn waited_until(&self, end: Timestamp) -> Timestamp {
        self.returned.or(self.killed).unwrap_or(end)
    }

    /// When its owner ended its hold or learned of the end; `end` if neither happened.
    #[must_use]
    pub fn held_until(&self, end: Timestamp) -> Timestamp {
        let ends = [self.ending, self.loss_reported, self.killed];
        ends.into_iter().flatten().min().unwrap_or(end)
    }

    /// Its claim, if it was granted. In doubt the shorter one.
    #[must_use]
    pub fn claim(&self, faults: &[Fault]) -> Option<Claim> {
        let wiped = self.wiped(faults).map(|fault| fault.from);
        self.claim_until(wiped, self.taken.map(|(called, _)| called))
    }

    /// Its claim, if it was granted. In doubt the shorter one, unless a master was lost.
    #[must_use]
    pub(super) fn claim_over_failovers(&self, faults: &[Fault]) -> Option<Claim> {
        let mut faults = faults.iter().filter(|fault| !fault.wiped.is_failover());
        let wiped = faults.find(|fault| self.may_be_wiped_by(fault));
        let taken = self.taken.map(|(called, _)| called);
        self.claim_until(wiped.map(|fault| fault.from), taken)
    }

    /// Its claim, if it was granted. In doubt the longer one: a wipe during its attempt may have come before the hold.
    #[must_use]
    pub fn longest_claim(&self, faults: &[Fault]) -> Option<Claim> {
        let wiped = self.surely_wiped(faults).map(|fault| fault.from);
        self.claim_until(wiped, self.taken.map(|(_, done)| done))
    }

    /// `taken`: when a detached hold was taken over.
    fn claim_until(&self, wiped: Option<Timestamp>, taken: Option<Timestamp>) -> Option<Claim> {
        let from = self.returned.filter(|_| self.granted)?;
        let mut claim = Claim {
            from,
            to: self.deadline.max(from),
        };
        // A detached hold keeps others out until its lease ends.
        claim.cut(if self.detached { taken } else { self.ending });
        claim.cut(self.loss_reported);
        claim.cut(self.killed.filter(|_| self.leased));
        claim.cut(wiped);
        Some(claim)
    }

    /// The first fault that may have taken its hold away.
    pub(super) fn wiped<'a>(&self, faults: &'a [Fault]) -> Option<&'a Fault> {
        let mut faults = faults.iter();
        faults.find(|fault| self.may_be_wiped_by(fault))
    }

    /// Whether this fault may have taken its hold away. A lost master did not, if its owner heard from the new one later: a
    /// renewal creates no hold.
    pub(super) fn may_be_wiped_by(&self, fault: &Fault) -> bool {
        let in_time = match &fault.wiped {
            Wiped::Unreplicated { until, .. } => {
                let held_until = if self.detached {
                    self.deadline
                } else {
                    self.held_until(Timestamp::MAX)
                };
                self.last_requested <= *until && held_until >= fault.from
            }
            Wiped::Nothing | Wiped::One(_) | Wiped::Everything => fault.to >= self.lease_requested,
        };
        let keys = [Some(&self.key), self.other_key.as_ref()];
        let is_theirs = || keys.into_iter().flatten().any(|key| fault.wiped.has(key));
        fault.hit && in_time && is_theirs()
    }

    /// The first fault that did take its hold away, for good: an attempt of its owner that was still on its way then
    /// brings the hold back.
    pub(super) fn surely_wiped<'a>(&self, faults: &'a [Fault]) -> Option<&'a Fault> {
        let comes_back = |wipe: &Fault| {
            let mut faults = faults.iter();
            faults.any(|fault| {
                fault.delays_attempts && fault.from <= self.held_since && fault.to >= wipe.from
            })
        };
        let mut wipes = faults.iter().filter(|fault| {
            fault.wiped.surely_has(&self.key) && fault.hit && fault.from > self.held_since
        });
        wipes.find(|wipe| !comes_back(wipe))
    }

    pub(super) fn apply(&mut self, at: Timestamp, what: &EventKind) {
        match what {
            EventKind::Called {
                key,
                other_key,
                wait,
                lease,
                shared,
                leased,
                ..
            } => {
                self.key.clone_from(key);
                self.other_key.clone_from(other_key);
                (self.wait, self.lease) = (*wait, *lease);
                (self.shared, self.leased) = (*shared, *leased);
            }
            EventKind::Granted {
                owner,
                deadline,
                token,
                ..
            } => {
                self.token = *token;
                (self.returned, self.granted) = (Some(at), true);
                (self.granted_until, self.deadline) = (*deadline, *deadline);
                self.owner = Some(owner.clone());
            }
            EventKind::Refused { why, .. } => {
                (self.returned, self.refused) = (Some(at), Some(why.clone()));
            }
            EventKind::Takes { from, .. } => self.takes = Some(*from),
            EventKind::Freed { .. } => (self.returned, self.freed) = (Some(at), true),
            EventKind::SeenFree { .. } => (self.returned, self.seen_free) = (Some(at), true),
            EventKind::Extended {
                asked,
                lease,
                before,
                deadline,
                ..
            } => {
                self.deadline = *deadline;
                self.extended = Some(Extension {
                    asked: *asked,
                    lease: *lease,
                    before: *before,
                    deadline: *deadline,
                });
            }
            EventKind::Unpolled { .. } => self.unpolled = Some((at, None)),
            EventKind::Polled { .. } => {
                self.unpolled = self.unpolled.map(|(since, _)| (since, Some(at)));
            }
            EventKind::Abandoned { .. } => self.returned = Some(at),
            EventKind::LatchOpened { .. } => (self.returned, self.latch_opened) = (Some(at), true),
            EventKind::Changing { key, change, .. } => {
                self.key.clone_from(key);
                self.change = Some((*change, None));
            }
            EventKind::Changed { answer, .. } => {
                self.returned = Some(at);
                self.change = self.change.map(|(change, _)| (change, Some(*answer)));
            }
            EventKind::Entered { .. } => self.entered = Some(at),
            EventKind::Wrote { accepted, .. } => self.wrote = Some((at, *accepted)),
            EventKind::LossReported { .. } => self.loss_reported = self.loss_reported.or(Some(at)),
            EventKind::Ending { deadline, .. } => {
                let before = self.ending.unwrap_or(Timestamp::MAX);
                (self.ending, self.deadline) = (Some(at.min(before)), *deadline);
            }
            EventKind::Ended { how, .. } => {
                if *how == End::Left {
                    self.ending = Some(self.deadline);
                }
                self.detached = *how == End::Detached;
                self.ended = Some((at, how.clone()));
            }
            EventKind::Fault(_) | EventKind::Stalled { .. } | EventKind::Killed { .. } => {}
        }
    }
}
