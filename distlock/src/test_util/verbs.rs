//! The bare verbs of a client's backend, without guards, queues and renewals.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::backend::{
    Attempt, Attempted, AttemptedAll, Backend, Change, DetachedOwner, Fault, Forced, Released,
    Renewal, Seen, Subscription, Target, Through,
};
use crate::client::Client;
use crate::error::{Error, HeldBy};
use crate::resource::key::{Key, Resource};
use crate::resource::kind::Kind;
use crate::resource::owner::Owner;
use crate::resource::permit_id::PermitId;
use crate::sync::Mutex;

/// The bare verbs of a client's backend, with owners that the caller numbers. For tests that compare two backends.
#[derive(Clone, Debug)]
pub struct Verbs {
    client: Client,
    owners: Uuid,
    kind: Kind,
    permits: u32,
    queue_ttl: Option<Duration>,
    inside: Option<u64>,
    /// The owner of the detached hold that an attempt attaches.
    instead_of: Option<u64>,
    round: u64,
    expires_after: Option<Duration>,
    /// Shared by all that were made from one.
    refused_by: Arc<Mutex<Option<Box<HeldBy>>>>,
}

/// The answer of a verb, in a form that can be compared between backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The attempt was granted.
    Granted,
    /// Another owner holds the key, for about this long.
    Held(Option<Duration>),
    /// There is no semaphore.
    Unset,
    /// For each renewal, whether the hold still is its owner's.
    Renewed(Vec<bool>),
    /// The owner's hold was freed.
    Freed,
    /// The owner held nothing.
    NotOurs,
    /// Whether a force-release freed anything.
    Forced(bool),
    /// What a force-release did that knew the holders.
    ForcedSeen(Forced),
    /// The name and count of each holder, and what is left of the lease.
    Holders(Vec<(String, u64)>, Option<Duration>),
    /// A number of permits, or of a latch.
    Number(i64),
    /// Another owner holds the key at this position, for about this long.
    HeldAt(usize, Option<Duration>),
    /// For each of several owners, whether its hold was freed.
    FreedEach(Vec<bool>),
    /// Granted, with this fencing token.
    Token(Option<u64>),
    /// The key holds a value of another type.
    WrongType,
    /// The answers to several at once.
    Each(Vec<Self>),
}

impl Verbs {
    /// The verbs of `client`'s backend. All owners have the UUID `owners`.
    pub fn new(client: &Client, owners: Uuid) -> Self {
        Self {
            client: client.clone(),
            owners,
            kind: Kind::Reentrant,
            permits: 1,
            queue_ttl: None,
            inside: None,
            instead_of: None,
            round: 0,
            expires_after: None,
            refused_by: Arc::default(),
        }
    }

    /// Whom the last refusal has named, if it came since this was asked.
    pub fn take_refused_by(&self) -> Option<HeldBy> {
        self.refused_by.lock().take().map(|holder| *holder)
    }

    fn with(&self, set: impl FnOnce(&mut Self)) -> Self {
        let mut verbs = self.clone();
        set(&mut verbs);
        verbs
    }

    /// The same verbs on another kind.
    #[must_use]
    pub fn of_kind(&self, kind: Kind) -> Self {
        self.with(|verbs| verbs.kind = kind)
    }

    /// The same verbs with this number of permits at once.
    #[must_use]
    pub fn with_permits(&self, permits: u32) -> Self {
        self.with(|verbs| verbs.permits = permits)
    }

    /// The same verbs with attempts of a waiter, whose place in the server is kept for this time.
    #[must_use]
    pub fn waiting(&self, queue_ttl: Duration) -> Self {
        self.with(|verbs| verbs.queue_ttl = Some(queue_ttl))
    }

    /// The same verbs with attempts nested in the hold of this owner.
    #[must_use]
    pub fn inside(&self, number: u64) -> Self {
        self.with(|verbs| verbs.inside = Some(number))
    }

    /// The same verbs, whose attempts attach the hold of owner `number`.
    #[must_use]
    pub fn instead_of(&self, number: u64) -> Self {
        self.with(|verbs| verbs.instead_of = Some(number))
    }

    /// The same verbs on numbers that expire so long after their last use.
    #[must_use]
    pub fn expiring(&self, after: Duration) -> Self {
        self.with(|verbs| verbs.expires_after = Some(after))
    }

    /// The same verbs on keys that no other round uses.
    #[must_use]
    pub fn in_round(&self, round: u64) -> Self {
        self.with(|verbs| verbs.round = round)
    }

    /// The name of a key of this round in the server, without the client's prefix.
    pub fn name(&self, key: &str) -> String {
        match self.round {
            0 => key.to_owned(),
            round => format!("{key}:{round}"),
        }
    }

    fn target(&self, key: &str, number: u64) -> Result<Target, Error> {
        let registry = self.client.registry();
        let prefix = &registry.session.config.key_prefix;
        let key = Key::new(prefix, &self.name(key))?;
        let resource = Resource {
            kind: self.kind,
            key: match self.expires_after {
                Some(after) => key.expiring(after),
                None => key,
            },
        };
        let mut target = Target::of(&resource, Owner::new(self.owners, number));
        target.permits = self.permits;
        Ok(target)
    }

    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.client.registry().session.backend)
    }

    async fn reply<T>(
        &self,
        target: &Target,
        reply: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Error> {
        reply
            .await
            .map_err(|fault| fault.into_error(&target.resource.key, Duration::ZERO))
    }

    /// Subscribes to what a waiter for the key needs to know.
    pub fn subscribe(&self, key: &str) -> Result<Subscription, Error> {
        let target = self.target(key, 0)?;
        let backend = self.backend();
        Ok(backend.subscribe(&target))
    }

    /// One attempt of owner `number`.
    pub async fn attempt(&self, key: &str, number: u64, lease: Duration) -> Result<Answer, Error> {
        let mut attempt = Attempt::new(self.target(key, number)?, lease);
        attempt.queue_ttl = self.queue_ttl;
        let owner = |number| Owner::new(self.owners, number);
        let inside = self.inside.map(|number| Through::Write(owner(number)));
        let detached = self.instead_of.map(|number| DetachedOwner {
            owner: owner(number),
            token: None,
        });
        let detached = detached.map(Through::Detached);
        attempt.through = inside.or(detached).map(Box::new);
        Ok(match self.answer(&attempt).await? {
            Answer::Token(_) => Answer::Granted,
            refused => refused,
        })
    }

    /// The answer to an attempt, with the fencing token of a grant.
    async fn answer(&self, attempt: &Attempt) -> Result<Answer, Error> {
        let backend = self.backend();
        let attempted = self.reply(&attempt.target, backend.attempt(attempt));
        Ok(match attempted.await? {
            Attempted::Granted { token } => Answer::Token(token),
            Attempted::Held { ttl, holder } => {
                *self.refused_by.lock() = holder;
                Answer::Held(ttl)
            }
            Attempted::Unset => Answer::Unset,
        })
    }

    /// One batch of renewals: key, owner, count and lease of each.
    pub async fn renew(&self, batch: &[(&str, u64, u32, Duration)]) -> Result<Answer, Error> {
        let renewal = |(key, number, count, lease): &(&str, u64, u32, Duration)| {
            let target = self.target(key, *number)?;
            Ok(Renewal {
                target,
                count: *count,
                lease: *lease,
                track: false,
            })
        };
        let batch = batch
            .iter()
            .map(renewal)
            .collect::<Result<Vec<_>, Error>>()?;
        let Some(first) = batch.first() else {
            return Ok(Answer::Renewed(Vec::new()));
        };
        let backend = self.backend();
        let renewed = async { backend.renew(&batch).await.into_iter().collect() };
        Ok(Answer::Renewed(
            self.reply(&first.target, Box::pin(renewed)).await?,
        ))
    }

    /// The release of owner `number`.
    pub async fn release(&self, key: &str, number: u64) -> Result<Answer, Error> {
        let target = self.target(key, number)?;
        let backend = self.backend();
        let released = self.reply(&target, backend.release(&target)).await?;
        Ok(freed(released))
    }

    /// One attempt on several keys together, each for its own owner and lease.
    ///
    /// # Errors
    /// The fault of the backend, as users see it.
    pub async fn attempt_all(&self, keys: &[(&str, u64, Duration)]) -> Result<Answer, Error> {
        let attempt = |(key, number, lease): &(&str, u64, Duration)| {
            let target = self.target(key, *number)?;
            Ok::<_, Error>(Attempt::new(target, *lease))
        };
        let attempts = keys.iter().map(attempt).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = attempts.first() else {
            return Ok(Answer::Granted);
        };
        let backend = self.backend();
        let reply = self.reply(&first.target, backend.attempt_all(&attempts));
        let AttemptedAll { at, attempted } = reply.await?;
        Ok(match attempted {
            Attempted::Granted { .. } => Answer::Granted,
            Attempted::Held { ttl, holder } => {
                *self.refused_by.lock() = holder;
                Answer::HeldAt(at, ttl)
            }
            Attempted::Unset => Answer::Unset,
        })
    }

    /// The releases of several owners.
    ///
    /// # Errors
    /// The fault of the backend, as users see it.
    pub async fn release_all(&self, keys: &[(&str, u64)]) -> Result<Answer, Error> {
        let targets = keys.iter().map(|(key, number)| self.target(key, *number));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let Some(first) = targets.first() else {
            return Ok(Answer::FreedEach(Vec::new()));
        };
        let backend = self.backend();
        let released = self.reply(first, backend.release_all(&targets)).await?;
        let freed = |released: Released| matches!(released, Released::Freed { .. });
        Ok(Answer::FreedEach(released.into_iter().map(freed).collect()))
    }

    /// One attempt by a client that has seen the fencing token `above`. The answer has the new token.
    ///
    /// # Errors
    /// The fault of the backend, as users see it.
    pub async fn attempt_above(
        &self,
        key: &str,
        number: u64,
        lease: Duration,
        above: u64,
    ) -> Result<Answer, Error> {
        let mut attempt = Attempt::new(self.target(key, number)?, lease);
        attempt.above = above;
        self.answer(&attempt).await
    }

    /// The withdrawal of owner `number`.
    ///
    /// # Errors
    /// The fault of the backend, as users see it.
    pub async fn withdraw(&self, key: &str, number: u64) -> Result<Answer, Error> {
        let target = self.target(key, number)?;
        let backend = self.backend();
        let released = self.reply(&target, backend.withdraw(&target)).await?;
        Ok(freed(released))
    }

    /// The ids of the permits of owner `number`, acquired or not.
    pub fn permit_ids(&self, number: u64) -> Vec<PermitId> {
        PermitId::all_of(Owner::new(self.owners, number), self.permits).collect()
    }

    /// One change of a number, under request `number`.
    ///
    /// # Errors
    /// The fault of the backend, as users see it.
    pub async fn adjust(
        &self,
        key: &str,
        number: u64,
        change: impl Into<Change>,
    ) -> Result<Answer, Error> {
        let target = self.target(key, number)?;
        let backend = self.backend();
        let adjusted = backend.adjust(&target.resource.key, target.owner, change.into());
        Ok(Answer::Number(self.reply(&target, adjusted).await?))
    }

    /// One force-release.
    pub async fn force_release(&self, key: &str) -> Result<Answer, Error> {
        let target = self.target(key, 0)?;
        let backend = self.backend();
        let forced = self
            .reply(&target, backend.force_release(&target.resource, None))
            .await?;
        Ok(Answer::Forced(forced == Forced::Freed))
    }

    /// One force-release of what somebody has seen.
    pub async fn force_release_seen(&self, key: &str, seen: &Seen) -> Result<Answer, Error> {
        let target = self.target(key, 0)?;
        let backend = self.backend();
        let forced = backend.force_release(&target.resource, Some(seen));
        Ok(Answer::ForcedSeen(self.reply(&target, forced).await?))
    }

    /// One inspection.
    pub async fn inspect(&self, key: &str) -> Result<Answer, Error> {
        let target = self.target(key, 0)?;
        let backend = self.backend();
        let inspected = self
            .reply(&target, backend.inspect(&target.resource))
            .await?;
        let text =
            |(owner, count): (Vec<u8>, u64)| (String::from_utf8_lossy(&owner).into_owned(), count);
        let mut holders: Vec<_> = inspected.holders.into_iter().map(text).collect();
        holders.sort();
        Ok(Answer::Holders(holders, inspected.ttl))
    }
}

fn freed(released: Released) -> Answer {
    match released {
        Released::Freed { .. } => Answer::Freed,
        Released::NotOurs => Answer::NotOurs,
    }
}
