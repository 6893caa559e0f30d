//! A decorator that makes one mistake on purpose. The tests that look for such mistakes have to find each.

mod batches;
mod confirmed;
mod flaw;
mod grants;
mod leases;
mod numbers;
mod outcome;
mod reentry;
mod repeated;
mod scripts;
mod subscriptions;
mod waiters;

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;

use self::batches::Batches;
use self::confirmed::Confirmed;
pub use self::flaw::Flaw;
use self::grants::Refusals;
use self::leases::Leases;
use self::numbers::Sent;
use self::outcome::Owners;
use self::reentry::Inside;
use self::repeated::Ended;
use self::scripts::Stated;
use self::subscriptions::Shares;
use distlock::test_util::{
    Attempt, Attempted, AttemptedAll, Backend, Change, Clock, ConnectionGap, ConnectionSeen,
    Connections, Disconnection, Fault as BackendFault, Forced, Home, Inspected, Key, Kind,
    LatchSeen, NamedClient, Peeked, Released, Renewal, Renewed, Reply, Reports, Resource,
    ScanFilter, ScanPosition, Scanned, Seen, Subscription, Target, Told,
};
use distlock::{KeyReport, Owner};

/// A backend with one flaw, and the state that the flaws need.
#[derive(Debug)]
pub(crate) struct Flawed {
    inner: Arc<dyn Backend>,
    clock: Clock,
    flaw: Flaw,
    stated: Stated,
    owners: Owners,
    inside: Inside,
    shares: Arc<Shares>,
    sent: Sent,
    refusals: Refusals,
    leases: Leases,
    confirmed: Confirmed,
    ended: Ended,
    batches: Batches,
}

impl Flawed {
    pub(crate) fn new(inner: Arc<dyn Backend>, clock: Clock, flaw: Flaw) -> Self {
        Self {
            inner,
            clock,
            flaw,
            stated: Stated::default(),
            owners: Owners::default(),
            inside: Inside::default(),
            shares: Arc::default(),
            sent: Sent::default(),
            refusals: Refusals::default(),
            leases: Leases::default(),
            confirmed: Confirmed::default(),
            ended: Ended::default(),
            batches: Batches::default(),
        }
    }
}

impl Backend for Flawed {
    fn attempt<'a>(&'a self, attempt: &'a Attempt) -> Reply<'a, Attempted> {
        let inner = &*self.inner;
        match self.flaw {
            Flaw::DeltaInsteadOfCount => Reply::new(self.stated.attempt(inner, attempt)),
            Flaw::LeaseCutShort => Reply::new(scripts::attempt_cut_short(inner, attempt)),
            Flaw::TtlForgotten => Reply::new(scripts::attempt_without_end(inner, attempt)),
            Flaw::NoCleanUp => Reply::new(self.owners.attempt(inner, attempt)),
            Flaw::HandOverNotConfirmed => {
                self.confirmed.note(inner, &attempt.target, &self.clock);
                inner.attempt(attempt)
            }
            Flaw::DoubtEndsWithLease => Reply::new(self.ended.attempt(inner, attempt, &self.clock)),
            Flaw::ReentryByKey => Reply::new(self.inside.attempt(inner, attempt)),
            Flaw::ReaderBesideWriter => Reply::new(grants::always_to_readers(inner, attempt)),
            Flaw::RefusalTakenForGrant => Reply::new(self.refusals.attempt(inner, attempt)),
            Flaw::PlaceNotKept => Reply::new(grants::without_place(inner, attempt)),
            Flaw::TokenFromMemory => Reply::new(grants::token_from_memory(inner, attempt)),
            Flaw::ExtensionForgotten => {
                self.leases.note(attempt);
                inner.attempt(attempt)
            }
            Flaw::AttachedAgain => Reply::new(leases::attach_what_is_gone(inner, attempt)),
            Flaw::AnswerOfAnother => {
                Reply::new(self.batches.answered_as_the_last_one(inner, attempt))
            }
            Flaw::BatchCutInTheMiddle => Reply::new(self.batches.attempt_if_first(inner, attempt)),
            _ => inner.attempt(attempt),
        }
    }

    fn attempt_all<'a>(&'a self, attempts: &'a [Attempt]) -> Reply<'a, AttemptedAll> {
        self.inner.attempt_all(attempts)
    }

    fn confirm<'a>(&'a self, granted: &'a [Attempt]) -> Option<Reply<'a, ()>> {
        self.inner.confirm(granted)
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> Renewed<'a> {
        let inner = &*self.inner;
        match self.flaw {
            Flaw::RenewWithoutOwnerTest => Box::pin(scripts::renew_any_owner(inner, batch)),
            Flaw::LeaseCutShort => Box::pin(scripts::renew_cut_short(inner, batch)),
            Flaw::DeltaInsteadOfCount => Box::pin(self.stated.renew(inner, batch)),
            Flaw::RenewalNotRetried => Box::pin(self.owners.renew(inner, batch)),
            Flaw::HandOverNotConfirmed => Box::pin(self.confirmed.renew(inner, batch, &self.clock)),
            Flaw::ReentryByKey => Box::pin(self.inside.renew(inner, batch)),
            Flaw::ExtensionForgotten => Box::pin(self.leases.renew(inner, batch)),
            _ => inner.renew(batch),
        }
    }

    fn release<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        let inner = &*self.inner;
        match self.flaw {
            Flaw::ReleaseWithoutOwnerTest => Reply::new(scripts::release_any_owner(inner, target)),
            Flaw::DeltaInsteadOfCount => Reply::new(self.stated.release(inner, target)),
            Flaw::NoCleanUp => Reply::new(self.owners.release(inner, target)),
            Flaw::ReentryByKey => Reply::new(self.inside.release(inner, target)),
            Flaw::PermitsGivenAgain => Reply::new(self.sent.release(inner, target)),
            Flaw::EndForgotten => Reply::new(numbers::release_without_mark(inner, target)),
            Flaw::ReleaseNotRepeated => Reply::new(self.ended.release_once(inner, target)),
            Flaw::BatchCutInTheMiddle => Reply::new(self.batches.release_if_first(inner, target)),
            _ => inner.release(target),
        }
    }

    fn release_all<'a>(&'a self, targets: &'a [Target]) -> Reply<'a, Vec<Released>> {
        self.inner.release_all(targets)
    }

    fn withdraw<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        match self.flaw {
            Flaw::ReleaseWithoutOwnerTest
            | Flaw::DeltaInsteadOfCount
            | Flaw::NoCleanUp
            | Flaw::ReentryByKey
            | Flaw::PermitsGivenAgain
            | Flaw::EndForgotten => self.release(target),
            Flaw::DoubtEndsWithLease => {
                let inner = &*self.inner;
                Reply::new(self.ended.withdraw_in_time(inner, target, &self.clock))
            }
            _ => self.inner.withdraw(target),
        }
    }

    fn force_release<'a>(
        &'a self,
        resource: &'a Resource,
        seen: Option<&'a Seen>,
    ) -> Reply<'a, Forced> {
        self.inner.force_release(resource, seen)
    }

    fn peek<'a>(&'a self, batch: &'a [Target]) -> Reply<'a, Vec<Peeked>> {
        match self.flaw {
            Flaw::LookSeesNothing => Reply::new(subscriptions::look_away(batch)),
            _ => self.inner.peek(batch),
        }
    }

    fn track<'a>(&'a self, batch: &'a [Target]) -> Reply<'a, Option<Vec<bool>>> {
        self.inner.track(batch)
    }

    fn adjust<'a>(&'a self, key: &'a Key, request: Owner, change: Change) -> Reply<'a, i64> {
        let inner = &*self.inner;
        match self.flaw {
            Flaw::ChangeCountsAgain => Reply::new(self.sent.adjust(inner, key, change)),
            Flaw::RequestForgotten => {
                Reply::new(numbers::adjust_and_forget(inner, key, request, change))
            }
            _ => inner.adjust(key, request, change),
        }
    }

    fn latch<'a>(&'a self, key: &'a Key) -> Reply<'a, LatchSeen> {
        self.inner.latch(key)
    }

    fn answered(&self, key: &Key, request: Owner) {
        self.inner.answered(key, request);
    }

    fn refuses(&self, kind: Kind, key: &Key) -> Option<&'static str> {
        self.inner.refuses(kind, key)
    }
}

impl Reports for Flawed {
    fn inspect<'a>(&'a self, resource: &'a Resource) -> Reply<'a, Inspected> {
        match self.flaw {
            Flaw::HoldersUnseen => Reply::new(async { Ok(Inspected::default()) }),
            _ => self.inner.inspect(resource),
        }
    }

    fn listeners<'a>(&'a self, key: &'a Key) -> Reply<'a, u64> {
        self.inner.listeners(key)
    }

    fn examine<'a>(&'a self, key: &'a Key) -> Reply<'a, KeyReport> {
        self.inner.examine(key)
    }

    fn scan<'a>(
        &'a self,
        position: &'a ScanPosition,
        wanted: ScanFilter<'a>,
        most: u32,
    ) -> Reply<'a, Scanned> {
        self.inner.scan(position, wanted, most)
    }

    fn named_clients<'a>(&'a self, key: &'a Key) -> Reply<'a, Vec<NamedClient>> {
        self.inner.named_clients(key)
    }
}

impl Connections for Flawed {
    fn tracks(&self) -> bool {
        self.inner.tracks()
    }

    fn told(&self) -> Pin<Box<dyn Future<Output = Told> + Send + '_>> {
        match self.flaw {
            Flaw::LossUntold => Box::pin(pending()),
            _ => self.inner.told(),
        }
    }

    fn ping(&self) -> Reply<'_, ()> {
        self.inner.ping()
    }

    fn longest_disconnection(&self) -> Option<Disconnection> {
        self.inner.longest_disconnection()
    }

    fn servers(&self) -> String {
        self.inner.servers()
    }

    fn has_heard_all<'a>(
        &'a self,
        target: &'a Target,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        self.inner.has_heard_all(target)
    }

    fn subscribe(&self, target: &Target) -> Subscription {
        let subscribe = || self.inner.subscribe(target);
        match self.flaw {
            Flaw::NoTryAfterSubscribe => {
                subscriptions::active_at_once(subscribe(), self.clock.clone())
            }
            Flaw::NoTryAfterReconnect => subscriptions::silent_when_dropped(subscribe()),
            Flaw::UnsubscribeRace => {
                self.shares
                    .join(&target.resource.key, self.clock.clone(), subscribe)
            }
            _ => subscribe(),
        }
    }

    fn home(&self, key: &Key) -> Home {
        self.inner.home(key)
    }

    fn counts_all_listeners(&self) -> bool {
        self.inner.counts_all_listeners()
    }

    fn disconnected(&self, key: &Key) -> Option<BackendFault> {
        self.inner.disconnected(key)
    }

    fn connection_gap(&self, key: &Key) -> Option<ConnectionGap> {
        self.inner.connection_gap(key)
    }

    fn epoch(&self, key: &Key) -> u64 {
        self.inner.epoch(key)
    }

    fn may_have_lost(&self, key: &Key, epoch: u64) -> bool {
        self.inner.may_have_lost(key, epoch)
    }

    fn epoch_changes(&self) -> u64 {
        self.inner.epoch_changes()
    }

    fn epoch_changes_after(&self, changes: u64) -> Pin<Box<dyn Future<Output = u64> + Send + '_>> {
        match self.flaw {
            Flaw::ReconnectUntold => Box::pin(pending()),
            _ => self.inner.epoch_changes_after(changes),
        }
    }

    fn has_connection(&self) -> bool {
        self.inner.has_connection()
    }

    fn connections(&self) -> Vec<ConnectionSeen> {
        self.inner.connections()
    }
}

/// The count that the server shows for the owner of `target`, if the owner holds the key.
async fn count_of(inner: &dyn Backend, target: &Target) -> Result<Option<u64>, BackendFault> {
    let owner = target.owner.to_string().into_bytes();
    let inspected = inner.inspect(&target.resource).await?;
    let mut holders = inspected.holders.into_iter();
    Ok(holders.find(|(name, _)| *name == owner).map(|(_, n)| n))
}
