//! One round: all servers are asked at once, and those that answer much later than the quorum are left behind.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use smallvec::{SmallVec, smallvec};

use super::Rounds;
use crate::clock::Tick;
use crate::config::QUORUM_GRACE;
use crate::error::{Error, HeldBy};
use crate::hold::Hold;
use crate::local::{HoldShare, HoldShares, OpenShares};
use crate::wait::{ClientRequest, TryOutcome, one_server, try_once};

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
    pub(super) holder: Option<Box<HeldBy>>,
}

impl Rounds<'_> {
    /// Asks all servers, until a quorum has answered and the grace for the others is over, or until there can be no quorum.
    pub(super) async fn play(&self, deadline: Tick, apart: &mut Apart) -> Round {
        let mut began = self.now();
        let (mut shares, mut refused, mut failed) = (HoldShares::new(), Vec::new(), None);
        let (mut granted, mut failures) = (0, 0);
        let ask = |server: usize| {
            let one = &self.requests[server];
            async move { (server, try_once(&one.registry, &one.request).await) }
        };
        let mut tries: FuturesUnordered<_> = (0..self.requests.len()).map(ask).collect();
        // The servers that have granted the shares.
        let mut of_shares = SmallVec::<[usize; 8]>::new();
        // The backend limits the time of a single attempt.
        let single = self.request().is_single_try();
        let longest = if single { Tick::NEVER } else { deadline };
        let mut until = longest;
        let mut open: SmallVec<[bool; 8]> = smallvec![true; self.requests.len()];
        let mut one_server = None;
        loop {
            let has_quorum_answered = shares.len() + refused.len() >= self.quorum;
            let answer = if has_quorum_answered && !self.may_answer(&open) {
                // Takes only answers that have already arrived.
                tries.next().now_or_never().flatten()
            } else {
                let answer = async {
                    tokio::select! {
                        // In this order: an answer that has arrived counts, even if the time is over by now.
                        biased;
                        answer = tries.next() => answer,
                        () = self.session().clock.sleep_until(until) => None,
                    }
                };
                if shares.is_empty() {
                    answer.await
                } else {
                    let (answer, kept) = self.session().beside(|| shares, answer).await;
                    let kept = kept.take();
                    let has_ended = kept.is_none();
                    shares = kept.unwrap_or_default();
                    if has_ended {
                        // It was not polled for so long that they were ended: those servers are asked again.
                        (began, until) = (self.now(), longest);
                        granted -= of_shares.len();
                        for server in of_shares.drain(..) {
                            open[server] = true;
                            tries.push(ask(server));
                        }
                        if answer.is_none() {
                            continue;
                        }
                    }
                    answer
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
                    of_shares.push(server);
                    shares.extend(shares_of(opened));
                }
                Ok(TryOutcome::Held { ttl, holder, .. }) => refused.push(Refusal {
                    server,
                    ttl,
                    holder,
                }),
                Err(error) => {
                    failures += 1;
                    failed = failed.or(Some(error));
                }
            }
            let (answered, spare) = (granted + refused.len(), self.requests.len() - self.quorum);
            let in_vain = refused.len() + failures > spare;
            if in_vain {
                one_server = self.one_server(&mut shares, &refused, apart).await;
                if one_server.is_some() {
                    break;
                }
                // Released at once: these grants would exclude other clients while this round only finds out whether
                // the result is busy or unavailable.
                shares.clear();
                of_shares.clear();
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
            one_server = self.one_server(&mut shares, &refused, apart).await;
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
        shares: &mut HoldShares,
        refused: &[Refusal],
        apart: &mut Apart,
    ) -> Option<Error> {
        let mut open = Vec::new();
        for share in shares.iter() {
            let client = share.hold_ref().client();
            let mut requests = self.requests.iter();
            let granted = requests.position(|one| one.registry.session.id == client)?;
            for Refusal { server, .. } in refused {
                if !apart.contains(&(granted, *server)) {
                    open.push((granted, *server, Arc::clone(share.hold_ref().hold())));
                }
            }
        }
        if open.is_empty() {
            return None;
        }
        let before = std::mem::take(shares);
        let asked = self.first_one_server(open);
        let (answer, kept) = self.session().beside(|| before, asked).await;
        // If they were ended meanwhile, the answers tell nothing.
        *shares = kept.take()?;
        match answer {
            Ok(others) => {
                apart.extend(others);
                None
            }
            Err(error) => Some(error),
        }
    }

    /// Asks which of these pairs of clients use one server, for the first of which there is an error. Otherwise returns all of
    /// them.
    async fn first_one_server(
        &self,
        pairs: Vec<(usize, usize, Arc<Hold>)>,
    ) -> Result<Apart, Error> {
        let ask = |(granted, server, hold): (usize, usize, Arc<Hold>)| {
            let one: &ClientRequest = &self.requests[server];
            async move {
                let (session, key) = (&one.registry.session, &one.requested().resource.key);
                let is_one = one_server::has_hold(session, &one.request, key, &hold).await;
                (granted, server, is_one)
            }
        };
        let mut asked: FuturesUnordered<_> = pairs.into_iter().map(ask).collect();
        let mut apart = Apart::new();
        while let Some((granted, server, is_one)) = asked.next().await {
            if is_one {
                let [one, other] = [granted, server].map(|at| &self.requests[at].registry.session);
                let both = format!("{}, which is one server", one_server::both(one, other));
                return Err(Error::invalid_config("servers of the Quorum", both));
            }
            apart.push((granted, server));
        }
        Ok(apart)
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
