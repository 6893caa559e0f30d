//! How an acquisition waits.
//!
//! # The steps of an acquisition
//! 1. **Re-entry.** [`acquire::reentry`](crate::acquire) looks at the scopes around the caller first. If a scope holds
//!    the key, the acquisition re-enters that hold without this module. Or the scope admits the acquisition, and the
//!    next steps ask the server for a hold beside that of the scope.
//! 2. **A single attempt** (`wait` zero, `try_acquire`) does not join the local queue. It makes one attempt and returns
//!    the answer.
//! 3. **The local queue.** Any other acquisition joins the queue of its key in this client. For kinds whose holds do
//!    not exclude each other, such as read locks, it does so only if others already wait, or after a refusal. Only the
//!    head of the queue talks to the server, so a thousand local waiters cost the server no more than one. The waiters
//!    are served in the order of their arrival. Fair locks have no local queue, because the server keeps the order of
//!    arrival among all processes.
//! 4. **Behind a holder of the same client** the head does not ask the server at once. For
//!    [`OWN_HOLDER_TRUST`](crate::config::OWN_HOLDER_TRUST) it expects that the hold is handed over or freed. After that
//!    it assumes a long hold, and asks the server and subscribes like any other waiter.
//! 5. **Attempt, subscribe, attempt again, sleep.** The head sends an attempt. If another owner holds the key it
//!    subscribes to the key's channel and sleeps only until the subscription is confirmed. Then it attempts again,
//!    because the lock may have been released before the subscription was active. After that it sleeps until a message
//!    arrives, the holder's lease is over, or the deadline has passed. A message is only a hint: the next attempt
//!    decides, or a peek that finds another owner; see [`yielding`]. If it hears nothing for
//!    [`MAX_SLEEP_WITHOUT_MESSAGE`](crate::config::MAX_SLEEP_WITHOUT_MESSAGE), it [peeks](peek) at the key, because a key can change without a
//!    message. A peek also reports the present end of the lease. The peeks of all
//!    waiters of a client are sent in batches, and only a waiter whose key seems free attempts again.
//! 6. **Several keys** of one client are waited for in one queue at a time, with the same place in all. [`several`] builds on
//!    the steps for one key.
//!    Keys of several slots of a cluster are asked for slot by slot; see [`several::parts`].
//! 7. **The end of the wait.** An acquisition that is dropped, or whose deadline passes, leaves the queue. A wake-up or
//!    a hold that had reached its slot goes to the next waiter. An owner whose attempt was not answered is ended in the
//!    background.
//!
//! # Hand-over
//! If a local waiter is next, a release does not need the server. The hold moves into the slot of the head, with its
//! owner and its deadline. The head makes a new guard for it, without a round trip. [`local::queue`](crate::local)
//! decides whether a hold is handed over. The hold must have no guard, no fixed lease, and at least half of its lease
//! left. Fair locks are never handed over, because the server keeps their order. Fenced locks are not, because each
//! grant needs a higher token. Holds that one command granted together are not either. A hold is never handed over after
//! a release was sent for it, because the release ends the owner.
//!
//! # After a dropped guard
//! Nobody waits for the release of a dropped guard, so the releaser's task begins it. Until then the hold waits without a guard,
//! and the next acquisition of the client takes it back. The rules of a hand-over apply, with those of *Yielding to other
//! processes*. Once the release was sent, its owner is never used again. The attempt of the next acquisition then follows right
//! behind the release, if both go over one connection, which keeps their order. The server decides about the attempt as about
//! any other, so the attempt is refused if the release fails. Other processes have no turn between the two. Such grants
//! therefore count like hand-overs, and no attempt follows in this way once the answer to a release has said that other clients
//! listened. In all other cases the acquisition waits for the answer to the release.
//!
//! # Waiters that are not polled
//! A waiter whose future exists but is not polled, such as one next to a `select!` loop, would keep the whole queue waiting.
//! While others need the head, the watchdog's task asks it for a sign once a second. A head that has not given one loses
//! its place, and the hold in its slot goes to the next waiter. When it is polled again, it joins the end of the queue.
//!
//! The same task also asks each future for a sign that has, or may have, something in the server without a guard: an attempt
//! under way or in doubt, or some of several keys. If there is no sign, the owners are ended, whether or not others wait. A
//! grant that such a future finds when it is polled again counts as too late, and the future asks again with another owner. Keys
//! that are acquired one after the other are not renewed before all of them are there.
//!
//! # Hand-overs are confirmed
//! The server may have lost the hold meanwhile, for example by a force-release. Nobody waits for an answer to find that out,
//! but each hand-over has the watchdog renew the hold ahead of its time, at most every
//! [`CONFIRM_INTERVAL`](crate::config::CONFIRM_INTERVAL). A message that a waiter receives while its own client has the hold
//! does the same. If the answer is that the server does not have the hold, the guard that has it loses it, and nobody takes
//! it over any more.
//!
//! # Yielding to other processes
//! Without a limit, hand-overs would keep a busy key in one process forever. After
//! [`HAND_OVER_GRANTS`](crate::config::HAND_OVER_GRANTS) grants or [`HAND_OVER_TIME`](crate::config::HAND_OVER_TIME)
//! the hold is released in the server instead. The answer to a release says whether other clients listened to its
//! message. If none did, the next run may have [more grants](crate::config::HAND_OVER_GRANTS_ALONE). If they did, the head
//! yields: it lets the others go first for one round trip or more, and for [`YIELD_TIME`](crate::config::YIELD_TIME) at
//! most if it hears nothing. Without this pause the head would win nearly every time, because it would send its attempt
//! before the other clients had received the message. Clients of Redisson need more time, and get as many grants as this
//! client had, 160 at most. Clients that hear of the same release take turns; see [`yielding`].
//!
//! Waiters that poll (spin locks) listen to nothing, so the answer to a release does not count them. The head leaves their key free at
//! intervals for its longest pause: every [`SPIN_TURN`](crate::config::SPIN_TURN) pauses, or every
//! [`SPIN_TURN_ALONE`](crate::config::SPIN_TURN_ALONE) pauses after nobody took the key.
//!
//! # Subscriptions
//! Waiters of one client share one subscription for each channel. A subscription that was interrupted and made again
//! wakes its waiters, because they may have missed messages. Waiters of kinds that have no messages (spin locks) pause
//! between attempts, twice as long each time. Waiters that the server keeps in a queue (fair locks, writers) repeat
//! their attempt often enough to keep their place there.
//!
//! # Waits that acquire nothing
//! [`until_free`] waits until nobody holds a key, and stands in no queue. All such waiters of a client are one: its session watches the
//! key for them. A candidate for a leader's lock (`client/leader/`) stands in no queue either, and pauses before it attempts.
//!
//! # When the server does not answer
//! An attempt of unknown outcome is sent again with the same owner, after growing pauses, for as long as the wait lasts but
//! at most `unavailable_after` in a row. Then the acquisition fails as unavailable and its owner is ended. The waiters
//! that stand in line behind it fail with it and do not ask. What the attempts of all keys met is kept in
//! [`session::outage`](crate::session). A wait that ends before any answer is unavailable if the server is known to be away, and
//! a timeout otherwise.
//!
//! When a connection is re-established, the server behind it may be another one, or may have lost or regained data. The client then
//! renews all its holds at once, repeats the releases of the last seconds, and ends the owners whose attempts it could not
//! end before.

mod attach;
mod attempt;
mod listener;
mod number;
pub(crate) mod one_server;
mod peek;
pub(crate) mod quorum;
mod refusal;
mod request;
mod several;
mod single;
mod turn;
mod unanswered;
mod until_free;
mod waiter;
mod yielding;

use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt as _;

pub(crate) use self::number::{adjust, until_zero};
use self::refusal::Refusal;
pub(crate) use self::request::{ClientRequest, Request, RequestedKey};
pub(crate) use self::several::rest_after_refusal;
pub(crate) use self::single::TryOutcome;
use self::single::try_keys;
pub(crate) use self::until_free::until_free;
use self::waiter::Waiter;
use crate::error::Error;
use crate::local::{OpenShares, Registry};
use crate::sync::first;

/// Makes a single attempt, without the local queue.
pub(crate) async fn try_once(
    registry: &Arc<Registry>,
    request: &Request,
) -> Result<TryOutcome, Error> {
    registry.session.tend_tasks();
    if request.has_several_keys() {
        // Boxed, here and below, so that an acquisition of one key has no room for several.
        Box::pin(several::parts::try_each(registry, request)).await
    } else {
        try_keys(registry, request, &[0]).await
    }
}

/// Waits until the only requested key is granted. Every acquisition of one key that is not a re-entry goes this way.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` keeps its arguments twice, and each waiter has room for this"
)]
pub(crate) fn acquire(
    registry: &Arc<Registry>,
    request: &Request,
) -> impl Future<Output = Result<OpenShares, Error>> {
    async move {
        if request.is_single_try() {
            // A single attempt waits for its answer, and a close must not wait for a server that is away.
            let closed = registry.session.closed.wait();
            let closed = closed.map(|()| Err(request.closed()));
            let tried = first(try_once(registry, request), closed).await?;
            let shares = granted_or_busy(tried, registry, request)?;
            return unless_closed(shares, registry, request);
        }
        registry.session.tend_tasks();
        // Declared before: the drop of the waiter may wake and count, and if a block's end panics, the value of the block is not
        // dropped.
        let shares;
        {
            let mut waiter = Waiter::new(registry, request, 0, None, None);
            // A part may have waited for others, and an acquisition in a scope at its gate. The time of a short lease must not begin
            // before the attempt.
            waiter.turn.is_new =
                !request.is_part && request.around.is_none() && !request.hold.has_own_end();
            shares = waiter.win().await?;
            // Before anything else happens, the waiter's owner is ended, and its turn goes to the next one.
        }
        unless_closed(shares, registry, request)
    }
}

/// Waits until all requested keys are granted. Boxed: an acquisition of several keys has no room for that of one.
pub(crate) fn acquire_all<'a>(
    registry: &'a Arc<Registry>,
    request: &'a Request,
) -> Pin<Box<dyn Future<Output = Result<OpenShares, Error>> + Send + 'a>> {
    if request.is_single_try() || !request.has_several_keys() {
        return Box::pin(acquire(registry, request));
    }
    Box::pin(async move {
        registry.session.tend_tasks();
        let shares = several::acquire(registry, request).await?;
        unless_closed(shares, registry, request)
    })
}

/// Attaches the hold that the request goes [through](RequestedKey::through).
///
/// # Errors
/// [`Error::Lost`] if the former owner does not hold the key any more. [`Error::Closed`] if the client is closed meanwhile: the hold is
/// still detached then, or it is released in the background.
pub(crate) async fn attach(
    registry: &Arc<Registry>,
    request: &Request,
) -> Result<OpenShares, Error> {
    let closed = registry.session.closed.wait();
    let closed = closed.map(|()| Err(request.closed()));
    let shares = first(attach::attach(registry, request), closed).await?;
    unless_closed(shares, registry, request)
}

/// The result of a single attempt, for the user.
fn granted_or_busy(
    tried: TryOutcome,
    registry: &Registry,
    request: &Request,
) -> Result<OpenShares, Error> {
    match tried {
        TryOutcome::Granted(shares) => Ok(shares),
        TryOutcome::Held(Refusal { at, by }) => {
            let (blocker, holder) = by.into_blocker();
            let key = &request.requested[at].resource.key;
            Err(request.timed_out(&registry.session, key, blocker, holder))
        }
    }
}

/// Gives back what was granted if the client was closed before the caller took it.
fn unless_closed(
    shares: OpenShares,
    registry: &Registry,
    request: &Request,
) -> Result<OpenShares, Error> {
    if registry.session.closed.is_set() {
        // First, so that nothing is held any more when the caller gets the error.
        drop(shares);
        return Err(request.closed());
    }
    Ok(shares)
}
