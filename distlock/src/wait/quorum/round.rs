//! One round: all servers are asked at once, and those that answer much later than the quorum are left behind.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use smallvec::{SmallVec, smallvec};

use super::{HoldShares, Rounds};
use crate::clock::Tick;
use crate::config::QUORUM_GRACE;
use crate::error::Error;
use crate::local::{HoldShare, OpenShares};
use crate::wait::{TryOutcome, one_server, try_once};

/// The result of a round.
pub(super) struct Round {
    pub(super) shares: HoldShares,
    pub(super) refused: Vec<Refusal>,
    /// How many of the servers that refused must change before there can be a quorum.
    pub(super) wanting: usize,
    /// The error, if fewer servers than a quorum answered.
    pub(super) unanswered: Option<Error>,
    /// The error, if two of the clients were found to use one server.
    pub(super) one_server: Option<Error>,
}

/// The pairs of clients that were found to use two servers, by their indices.
pub(super) type Apart = Vec<(usize, usize)>;

/// A server that refused, and the rest of the lease of the owner that holds the key there.
pub(super) struct Refusal {
    pub(super) server: usize,
    pub(super) ttl: Option<Duration>,
}

impl Rounds<'_> {
    /// Asks all servers, until a quorum has answered and the grace for the others is over, or until there can be no quorum.
    pub(super) async fn play(&self, deadline: Tick, apart: &mut Apart) -> Round {
        let began = self.now();
        let (mut shares, mut refused, mut failed) = (HoldShares::new(), Vec::new(), None);
        let (mut granted, mut failures) = (0, 0);
        let requests = self.requests.iter().enumerate();
        let mut tries: FuturesUnordered<_> =
            requests
                .map(|(server, one)| async move {
                    (server, try_once(&one.registry, &one.request).await)
                })
                .collect();
        // The backend limits the time of a single attempt.
        let single = self.request().is_single_try();
        let mut until = if single { Tick::NEVER } else { deadline };
        let mut open: SmallVec<[bool; 8]> = smallvec![true; self.requests.len()];
        let mut one_server = None;
        loop {
            let has_quorum_answered = shares.len() + refused.len() >= self.quorum;
            let answer = if has_quorum_answered && !self.may_answer(&open) {
                // Takes only answers that have already arrived.
                tries.next().now_or_never().flatten()
            } else {
                tokio::select! {
                    // In this order: an answer that has arrived counts, even if the time is over by now.
                    biased;
                    answer = tries.next() => answer,
                    () = self.session().clock.sleep_until(until) => None,
                }
            };
            let Some((server, tried)) = answer else {
                self.leave_behind(&open, began);
                break;
            };
            open[server] = false;
            match tried {
                Ok(TryOutcome::Granted(opened)) => {
                    granted += 1;
                    shares.extend(shares_of(opened));
                }
                Ok(TryOutcome::Held { ttl, .. }) => refused.push(Refusal { server, ttl }),
                Err(error) => {
                    failures += 1;
                    failed = failed.or(Some(error));
                }
            }
            let (answered, spare) = (granted + refused.len(), self.requests.len() - self.quorum);
            let in_vain = refused.len() + failures > spare;
            if in_vain {
                one_server = self.one_server(&shares, &refused, apart).await;
                if one_server.is_some() {
                    break;
                }
                // Released at once: these grants would exclude other clients while this round only finds out whether
                // the result is busy or unavailable.
                shares.clear();
            }
            if failures > spare || in_vain && answered >= self.quorum && single {
                break;
            }
            if answered == self.quorum {
                // The others are useful only if they answer soon. A refusal is useful too, because the server sends a
                // message when that hold ends.
                let took = self.now().since(began);
                until = until.min(self.now().after((took / 5).max(QUORUM_GRACE)));
            }
        }
        // By name: their drop ends owners, and what a function returns is not dropped if its end panics.
        drop(tries);
        if one_server.is_none() {
            one_server = self.one_server(&shares, &refused, apart).await;
        }
        let answered = granted + refused.len() >= self.quorum;
        Round {
            one_server,
            unanswered: (!answered).then(|| failed.unwrap_or_else(|| self.no_answer(began))),
            wanting: (self.quorum + refused.len() + failures)
                .saturating_sub(self.requests.len())
                .max(1),
            shares,
            refused,
        }
    }

    /// The error, if one server refused because it has granted the key to another client of this acquisition. Servers that were
    /// asked for that before are not asked again.
    async fn one_server(
        &self,
        shares: &HoldShares,
        refused: &[Refusal],
        apart: &mut Apart,
    ) -> Option<Error> {
        let mut asked = FuturesUnordered::new();
        for share in shares {
            let client = share.hold_ref().client();
            let mut requests = self.requests.iter();
            let granted = requests.position(|one| one.registry.session.id == client)?;
            for Refusal { server, .. } in refused {
                if apart.contains(&(granted, *server)) {
                    continue;
                }
                let one = &self.requests[*server];
                asked.push(async move {
                    let (session, key) = (&one.registry.session, &one.requested().resource.key);
                    let hold = share.hold_ref().hold();
                    let is_one = one_server::has_hold(session, &one.request, key, hold).await;
                    (granted, *server, is_one)
                });
            }
        }
        while let Some((granted, server, is_one)) = asked.next().await {
            if is_one {
                let [one, other] = [granted, server].map(|at| &self.requests[at].registry.session);
                let both = format!("{}, which is one server", one_server::both(one, other));
                return Some(Error::invalid_config("servers of the Quorum", both));
            }
            apart.push((granted, server));
        }
        None
    }

    /// Whether one of the servers that have not answered yet is not known as silent. A server that hangs therefore
    /// costs the grace once, and not in each round.
    fn may_answer(&self, open: &[bool]) -> bool {
        let mut open = self.requests.iter().zip(open).filter(|(_, open)| **open);
        open.any(|(one, _)| {
            !one.registry
                .session
                .is_silent(&one.requested().resource.key)
        })
    }

    /// Stops waiting for the open answers. Holds that those servers may have granted are released in the background.
    /// Later rounds wait for a server again when it has answered that release.
    fn leave_behind(&self, open: &[bool], began: Tick) {
        for (one, _) in self.requests.iter().zip(open).filter(|(_, open)| **open) {
            let key = &one.requested().resource.key;
            one.registry.session.unanswered(key, began, None);
        }
    }
}

fn shares_of(opened: OpenShares) -> impl Iterator<Item = HoldShare> {
    opened.into_iter().map(|open| {
        open.hold().keep_to_its_guards();
        HoldShare::new(open, None)
    })
}
