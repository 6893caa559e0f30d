//! A longer lease for a guard that has one of its own.

use std::time::Duration;

use futures_util::future::select_all;
use smallvec::{SmallVec, smallvec};

use super::Guard;
use super::shares::{MoreShares, Shares};
use crate::error::{Error, Loss};
use crate::local::{HoldShare, ShareRef};
use crate::sync::time::Instant;
use crate::wait::quorum;

type ShareRefs = SmallVec<[ShareRef; 1]>;

impl MoreShares {
    /// What an extension lengthens.
    fn share_refs(&self) -> ShareRefs {
        match self {
            Self::Several(several) => several.shares.iter().map(HoldShare::to_ref).collect(),
            Self::Quorum(quorum) => quorum.share_refs(),
        }
    }
}

impl Guard {
    /// Lets the guard's own lease end `lease` from now on, and returns until when the guard holds the key then.
    ///
    /// It is for guards that were acquired with a [lease](crate::Acquire::lease), which nothing renews. The server is asked for the
    /// longer lease once, and only if it still has the hold. The lease is never shortened: if the present one ends later, nothing
    /// is sent, and its end is returned. A guard of several keys has all of them extended, and a guard of a Redlock a majority of
    /// its servers.
    ///
    /// The instant is by tokio's clock, for [`timeout_at`](tokio::time::timeout_at) and
    /// [`sleep_until`](tokio::time::sleep_until). [`lease_margin`](crate::Builder::lease_margin) is subtracted. tokio's clock stands
    /// still while a machine is suspended, and leases do not, so ask [`is_held`](Guard::is_held) after such a time. An extension
    /// changes the lease of this guard alone: other guards of the hold keep theirs. A [`max_hold`](crate::Acquire::max_hold) limits
    /// the lease of an acquisition, and no extension.
    ///
    /// # Errors
    /// * [`Error::Lost`]: the hold was lost before.
    /// * [`Error::Unavailable`]: the server did not confirm it for
    ///   [`unavailable_after`](crate::Builder::unavailable_after). The guard holds the key until the end of its present lease.
    ///   Until then the client keeps asking, so the lease may still become longer. Calling this again is safe.
    /// * [`Error::InvalidLease`]: the lease is too short or too long. [`Error::InvalidConfig`]: nothing of it would be left without the
    ///   [`lease_margin`](crate::Builder::lease_margin).
    /// * [`Error::Unsupported`]: the guard has no lease of its own, because the watchdog renews it.
    ///
    /// # Cancel safety
    /// The client asks for the longer lease from the first poll on, even if the future is dropped.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// async fn step(_number: u32) {
    ///     tokio::time::sleep(Duration::from_secs(7)).await;
    /// }
    ///
    /// let client = distlock::Client::in_memory();
    /// let lease = Duration::from_secs(10);
    /// let guard = client.lock("import").acquire().lease(lease).await?;
    /// guard.try_scope(async {
    ///     for number in 0..3 {
    ///         let deadline = guard.extend(lease).await?;
    ///         // Each step has a lease for itself. One that hangs is given up with it.
    ///         if tokio::time::timeout_at(deadline, step(number)).await.is_err() {
    ///             break;
    ///         }
    ///     }
    ///     Ok::<_, distlock::Error>(())
    /// }).await?;
    /// guard.release().await
    /// # }
    /// ```
    #[doc(alias = "renew")]
    pub async fn extend(&self, lease: Duration) -> Result<Instant, Error> {
        let shares = self.share_refs();
        self.check_extension(&shares, lease)?;
        // Also one that has entered the holds of scopes around it, which sets the same part aside.
        let is_quorum = self.is_quorum() || shares.iter().any(ShareRef::allows_for_drift);
        let needs = self.view().needs();
        let drift = if is_quorum {
            quorum::drift(lease)
        } else {
            Duration::ZERO
        };
        let mut extended = 0;
        for share in &shares {
            match share.extend(lease, drift) {
                Ok(()) => extended += 1,
                // The parts of a quorum that are lost are none of it any more.
                Err(_lost) if is_quorum => {}
                Err(lost) => return Err(lost),
            }
        }
        if extended < needs {
            return Err(self.view().lost(Loss::Expired));
        }
        self.until_confirmed(&shares, needs).await?;
        Ok(Instant::now() + self.remaining())
    }

    fn share_refs(&self) -> ShareRefs {
        match &self.0 {
            Shares::One(share) => smallvec![share.to_ref()],
            Shares::More(more) => more.share_refs(),
        }
    }

    fn is_quorum(&self) -> bool {
        matches!(&self.0, Shares::More(more) if matches!(**more, MoreShares::Quorum(_)))
    }

    fn check_extension(&self, shares: &ShareRefs, lease: Duration) -> Result<(), Error> {
        for share in shares {
            share.session().config.check_lease(lease)?;
        }
        if shares.iter().all(ShareRef::has_own_lease) {
            return Ok(());
        }
        Err(Error::Unsupported {
            key: self.key().to_owned(),
            reason: "`extend` is for guards with a `lease` of their own; the watchdog renews this one for as long as it lives",
        })
    }

    /// Completes when as many servers as are needed have confirmed the longer lease.
    async fn until_confirmed(&self, shares: &ShareRefs, needs: usize) -> Result<(), Error> {
        let Some(first) = shares.first().map(ShareRef::session) else {
            return Ok(());
        };
        let since = first.now();
        let confirmed = async {
            loop {
                // Made before the look: from then on they miss nothing.
                let changes = shares
                    .iter()
                    // Boxed, because `select_all` moves them.
                    .map(|share| Box::pin(share.hold().over.next_change()));
                let changes = select_all(changes);
                if shares.iter().filter(|share| share.is_confirmed()).count() >= needs {
                    return;
                }
                changes.await;
            }
        };
        let patience = first.config.unavailable_after;
        crate::sync::select! {
            // In this order: what is confirmed counts, even if the time is over by now.
            biased;
            () = confirmed => Ok(()),
            () = self.lost() => Err(self.view().lost(Loss::Expired)),
            () = first.clock.sleep_until(since.after(patience)) => Err(Error::unavailable(
                self.key(),
                first.now().since(since),
                "the server did not confirm the longer lease",
            )),
        }
    }
}
