//! How a round is played: all servers are asked at once, and those that answer much later than the quorum are left behind.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use smallvec::{SmallVec, smallvec};

use super::Rounds;
use super::round::{Apart, Round, ServerRefusal};
use crate::clock::Tick;
use crate::config::{ONE_SERVER_WITHIN, QUORUM_GRACE};
use crate::error::Error;
use crate::hold::Hold;
use crate::local::{HoldShare, HoldShares, OpenShares};
use crate::sync::{Unordered, first};
use crate::wait::refusal::Refusal;
use crate::wait::{ClientRequest, TryOutcome, one_server, try_once};

/// The answer of the server with this index.
type ServerAnswer = (usize, Result<TryOutcome, Error>);

/// A round that is being played.
struct RoundInPlay<'r, 'a> {
    rounds: &'r Rounds<'a>,
    began: Tick,
    /// Answers that come later than this are left behind.
    until: Tick,
    /// The latest end of the round.
    longest: Tick,
    shares: HoldShares,
    /// The servers that have granted the shares.
    of_shares: SmallVec<[usize; 8]>,
    refused: Vec<ServerRefusal>,
    /// How many have granted, also those whose grants were given back.
    granted: usize,
    failures: usize,
    /// The first error that may pass.
    failed: Option<Error>,
    /// The servers that refused for good.
    refused_for_good: SmallVec<[usize; 8]>,
    /// The error of the first of them.
    for_good: Option<Error>,
    /// Which servers have not answered.
    open: SmallVec<[bool; 8]>,
}

impl Rounds<'_> {
    /// Asks all servers, until a quorum has answered and the grace for the others is over, or until there can be no quorum.
    ///
    /// # Errors
    /// The error that ends the acquisition: two of the clients use one server, or too many servers have refused for good.
    pub(super) async fn play(&self, apart: &mut Apart) -> Result<Round, Error> {
        let mut round = RoundInPlay::new(self);
        let ask = |server: usize| {
            let one = &self.requests[server];
            async move { (server, try_once(&one.registry, &one.request).await) }
        };
        // Declared after the round, so dropped before it: open attempts are given up before the shares are.
        let mut tries: Unordered<'_, _> = (0..self.requests.len()).map(ask).collect();
        let mut one_server = None;
        loop {
            let (answer, ended) = round.next_answer(&mut tries).await;
            let was_absent = ended.is_some();
            tries.extend(ended.into_iter().flatten().map(ask));
            let Some((server, tried)) = answer else {
                if was_absent {
                    continue;
                }
                self.leave_behind(&round.open, round.began);
                break;
            };
            round.take(server, tried);
            if round.is_in_vain() {
                one_server = self
                    .one_server(round.began, &mut round.shares, &round.refused, apart)
                    .await;
                if one_server.is_some() {
                    break;
                }
                round.give_back();
            }
            if round.is_decided() {
                break;
            }
            round.limit_the_rest();
        }
        // By name: their drop ends owners, and what a function returns is not dropped if its end panics.
        drop(tries);
        if one_server.is_none() {
            one_server = self
                .one_server(round.began, &mut round.shares, &round.refused, apart)
                .await;
        }
        one_server.map_or_else(|| round.ended(), Err)
    }

    /// The error, if one server refused because it has granted the key to another client of this acquisition. Servers that have
    /// answered that before are not asked again. `began`: when the round began.
    async fn one_server(
        &self,
        began: Tick,
        shares: &mut HoldShares,
        refused: &[ServerRefusal],
        apart: &mut Apart,
    ) -> Option<Error> {
        let mut open = Vec::new();
        for share in shares.iter() {
            let client = share.hold_ref().client();
            let mut requests = self.requests.iter();
            let granted = requests.position(|one| one.registry.session.id == client)?;
            for ServerRefusal { server, .. } in refused {
                if !apart.contains(&(granted, *server)) {
                    open.push((granted, *server, Arc::clone(share.hold_ref().hold())));
                }
            }
        }
        if open.is_empty() {
            return None;
        }
        // A server that does not answer delays a grant no longer than this. The grant keeps most of what is left of its lease. The
        // time that the round took shows how far away the servers are.
        let patience = (2 * self.now().since(began)).max(ONE_SERVER_WITHIN);
        let left = shares.iter().map(|share| share.hold_ref().left() / 4);
        let left = left.filter(|left| !left.is_zero()).min();
        let patience = left.map_or(patience, |left| patience.min(left));
        let before = std::mem::take(shares);
        let asked = self.first_one_server(open, patience);
        let (answer, kept) = self.session().beside(|| before, asked).await;
        // If they were ended meanwhile, the answers tell nothing.
        *shares = kept.take()?;
        match answer? {
            Ok(others) => {
                apart.extend(others);
                None
            }
            Err(error) => Some(error),
        }
    }

    /// Asks which of these pairs of clients use one server, for the first of which there is an error. Otherwise returns those
    /// that do not.
    async fn first_one_server(
        &self,
        pairs: Vec<(usize, usize, Arc<Hold>)>,
        patience: Duration,
    ) -> Result<Apart, Error> {
        let ask = |(granted, server, hold): (usize, usize, Arc<Hold>)| {
            let one: &ClientRequest = &self.requests[server];
            async move {
                let session = &one.registry.session;
                let key = &one.requested().resource.key;
                let by = session.now().after(patience);
                let by = by.min(one.request.answers_by());
                let is_one = one_server::has_hold(session, key, &hold, by).await;
                (granted, server, is_one)
            }
        };
        let mut asked: Unordered<'_, _> = pairs.into_iter().map(ask).collect();
        let mut apart = Apart::new();
        while let Some((granted, server, is_one)) = asked.next().await {
            if is_one == Some(true) {
                let [one, other] = [granted, server].map(|at| &self.requests[at].registry.session);
                let both = format!("{}, which is one server", one_server::both(one, other));
                return Err(Error::invalid_config(
                    "servers of the Quorum",
                    both,
                    "clients of independent servers",
                ));
            }
            if is_one.is_some() {
                apart.push((granted, server));
            }
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
                .outages
                .is_silent(&one.requested().resource.key)
        })
    }

    /// Stops waiting for the open answers. Holds that those servers may have granted are released in the background.
    /// Later rounds wait for a server again when it has answered that release.
    fn leave_behind(&self, open: &[bool], began: Tick) {
        for (one, _) in self.requests.iter().zip(open).filter(|(_, open)| **open) {
            let key = &one.requested().resource.key;
            one.registry.session.outages.unanswered(key, began, None);
        }
    }
}

impl<'r, 'a> RoundInPlay<'r, 'a> {
    fn new(rounds: &'r Rounds<'a>) -> Self {
        let longest = rounds.request().answers_by();
        Self {
            rounds,
            began: rounds.now(),
            until: longest,
            longest,
            shares: HoldShares::new(),
            of_shares: SmallVec::new(),
            refused: Vec::new(),
            granted: 0,
            failures: 0,
            failed: None,
            refused_for_good: SmallVec::new(),
            for_good: None,
            open: smallvec![true; rounds.requests.len()],
        }
    }

    /// Waits for the next answer; `None` if nothing is waited for any more. If the future was not polled for so long that what was
    /// granted and asked is over, it also returns the servers whose grants were ended, and which have to be asked again.
    async fn next_answer(
        &mut self,
        tries: &mut Unordered<'_, ServerAnswer>,
    ) -> (Option<ServerAnswer>, Option<SmallVec<[usize; 8]>>) {
        let rounds = self.rounds;
        let has_quorum_answered = self.shares.len() + self.refused.len() >= rounds.quorum;
        if has_quorum_answered && !rounds.may_answer(&self.open) {
            // Takes only answers that have already arrived.
            return (tries.next().now_or_never().flatten(), None);
        }
        let until = self.until;
        let too_late = async {
            rounds.session().clock.sleep_until(until).await;
            None
        };
        // In this order: an answer that has arrived counts, even if the time is over by now.
        let answer = first(tries.next(), too_late);
        // Also without a grant: it tells whether the future was absent, and the time of that is no silence of the servers.
        let shares = std::mem::take(&mut self.shares);
        let (answer, kept) = rounds.session().beside(|| shares, answer).await;
        let answer = answer.flatten();
        let Some(kept) = kept.take() else {
            self.began = rounds.now();
            self.until = self.longest;
            // Absent for long: what was granted is gone, and those servers are asked again with all the time.
            let ended = std::mem::take(&mut self.of_shares);
            self.granted -= ended.len();
            for server in &ended {
                self.open[*server] = true;
            }
            return (answer, Some(ended));
        };
        self.shares = kept;
        (answer, None)
    }

    fn take(&mut self, server: usize, tried: Result<TryOutcome, Error>) {
        self.open[server] = false;
        match tried {
            Ok(TryOutcome::Granted(opened)) => {
                self.granted += 1;
                self.of_shares.push(server);
                self.shares.extend(shares_of(opened));
            }
            Ok(TryOutcome::Held(Refusal { by, .. })) => {
                self.refused.push(ServerRefusal { server, by });
            }
            Err(error) => {
                self.failures += 1;
                if self.rounds.requests[server].may_pass(&error) {
                    self.failed.get_or_insert(error);
                } else {
                    self.refused_for_good.push(server);
                    self.for_good.get_or_insert(error);
                }
            }
        }
    }

    /// How many servers more than a quorum there are.
    fn spare(&self) -> usize {
        self.rounds.requests.len() - self.rounds.quorum
    }

    fn answered(&self) -> usize {
        self.granted + self.refused.len()
    }

    /// Whether no quorum can grant any more.
    fn is_in_vain(&self) -> bool {
        self.refused.len() + self.failures > self.spare()
    }

    /// Releases at once what was granted: these grants would exclude other clients while this round only finds out whether the
    /// result is busy or unavailable.
    fn give_back(&mut self) {
        self.shares.clear();
        self.of_shares.clear();
    }

    /// Whether the answers that are missing change nothing.
    fn is_decided(&self) -> bool {
        let is_single = self.rounds.request().is_single_try();
        self.failures > self.spare()
            || self.is_in_vain() && self.answered() >= self.rounds.quorum && is_single
    }

    /// Once a quorum has answered, the others are useful only if they answer soon. A refusal is useful too, because the server
    /// sends a message when that hold ends.
    fn limit_the_rest(&mut self) {
        if self.answered() == self.rounds.quorum {
            let now = self.rounds.now();
            let took = now.since(self.began);
            // In proportion to the time that the quorum took, so that servers that are far away get more.
            self.until = self.until.min(now.after((took / 5).max(QUORUM_GRACE)));
        }
        // A majority does not grow too old while a server is waited for that it does not need.
        if let Some(useful_for) = self.rounds.majority_is_useful_for(&self.shares) {
            self.until = self.until.min(self.rounds.now().after(useful_for / 2));
        }
    }

    fn ended(self) -> Result<Round, Error> {
        let rounds = self.rounds;
        let is_hopeless = self.refused_for_good.len() > self.spare();
        if let Some(error) = self.for_good.as_ref().filter(|_| is_hopeless) {
            return Err(error.clone());
        }
        let began = self.began;
        let has_answered = self.answered() >= rounds.quorum;
        let failed = self.failed;
        let unanswered = (!has_answered).then(|| failed.unwrap_or_else(|| rounds.no_answer(began)));
        let short = rounds.quorum + self.refused.len() + self.failures;
        Ok(Round {
            began,
            unanswered,
            refused_for_good: self.refused_for_good,
            wanting: short.saturating_sub(rounds.requests.len()).max(1),
            shares: self.shares,
            refused: self.refused,
        })
    }
}

fn shares_of(opened: OpenShares) -> impl Iterator<Item = HoldShare> {
    opened.into_iter().map(|open| {
        // A part of a Redlock means nothing without the others, so it is never handed over alone.
        open.hold().with_lease(|lease| lease.guards.keep_hold());
        HoldShare::new(open, None)
    })
}
