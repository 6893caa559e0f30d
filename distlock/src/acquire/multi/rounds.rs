//! The rounds of an acquisition of several groups.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::select_all;

use super::group::{Group, Parts};
use super::in_scopes::InScopes;
use crate::acquire::reentry::{ClosedGate, OpenGates, check_open};
use crate::clock::Tick;
use crate::error::Error;
use crate::local::{HoldShare, HoldShares};
use crate::sync::first;

/// Waits for one group or one gate, and tries all the rest, until nothing is refused.
pub(super) async fn acquire_groups(
    groups: &[Group],
    scopes: Option<&InScopes>,
) -> Result<HoldShares, Error> {
    let mut rounds = Rounds {
        given: groups,
        regrouped: None,
        scopes,
        first: 0,
        passed: None,
        refused: 0,
        too_slow_for: Duration::ZERO,
    };
    loop {
        // What a round was granted or has passed is dropped at its end: nothing is held while the next group or the next gate is
        // waited for.
        if let Some(shares) = rounds.play().await? {
            return Ok(shares);
        }
    }
}

/// What is known from one round to the next.
struct Rounds<'a> {
    given: &'a [Group],
    /// The groups in place of the given ones, if scopes have closed since. There are none if scopes have all keys.
    regrouped: Option<Vec<Group>>,
    scopes: Option<&'a InScopes>,
    /// The group that is waited for.
    first: usize,
    /// The gates that are passed already, in place of a wait.
    passed: Option<OpenGates>,
    /// How often a group was busy after others had been granted.
    refused: u32,
    /// How long it has taken keys in a row that were all granted, and not held together.
    too_slow_for: Duration,
}

/// What a round begins with.
struct Begun {
    /// The group that was waited for.
    granted: Option<usize>,
    parts: Parts,
}

impl Rounds<'_> {
    fn groups(&self) -> &[Group] {
        self.regrouped.as_deref().unwrap_or(self.given)
    }

    /// By the clock of the client of the first group. Those of other clients may have other starts.
    fn now(&self) -> Tick {
        self.given[0].one.registry.session.now()
    }

    /// Plays one round. Returns `None` if another one is needed.
    async fn play(&mut self) -> Result<Option<HoldShares>, Error> {
        let Some(Begun { granted, parts }) = self.begin().await? else {
            return Ok(None);
        };
        if let Some(now) = regroup(self.groups(), self.scopes, &parts.gates)? {
            self.regrouped = Some(now);
            (self.first, self.passed) = (0, Some(parts.gates));
            self.too_slow_for = Duration::ZERO;
            return Ok(None);
        }
        // From the first grant on.
        let began = self.now();
        let tried = match self.groups() {
            [_] if granted.is_some() => Tried::Granted(parts),
            // Boxed, here and below: this is rare, and each acquisition would have room for it.
            groups => Box::pin(try_others(groups, granted, parts)).await?,
        };
        match tried {
            Tried::Granted(parts) => self.hold_together(parts, began),
            Tried::Refused { at, is_busy } => {
                self.go_on_with(at, is_busy, began).await?;
                Ok(None)
            }
            Tried::Absent => Ok(None),
        }
    }

    /// Waits for the first group and tries the gates, unless these are passed already. If one is closed, waits at it, and returns
    /// `None`.
    async fn begin(&mut self) -> Result<Option<Begun>, Error> {
        if let Some(gates) = self.passed.take() {
            let parts = Parts {
                gates,
                ..Parts::default()
            };
            return Ok(Some(Begun {
                granted: None,
                parts,
            }));
        }
        let groups = self.groups();
        let Some(first) = groups.get(self.first) else {
            // Scopes have all keys, and one of these scopes has closed since its gate was passed.
            self.passed = Box::pin(pass_gates(self.scopes, None)).await?;
            return Ok(None);
        };
        match unless_closed(groups, acquire_first(first, self.scopes)).await? {
            Ok(parts) => Ok(Some(Begun {
                granted: Some(self.first),
                parts,
            })),
            Err(closed) => {
                let pass = pass_gates(self.scopes, Some(closed));
                self.passed = Box::pin(unless_closed(groups, pass)).await?;
                self.too_slow_for = Duration::ZERO;
                Ok(None)
            }
        }
    }

    /// The next round waits for the group `at`, which was refused. Rests before that if another owner holds a key of it.
    async fn go_on_with(&mut self, at: usize, is_busy: bool, began: Tick) -> Result<(), Error> {
        // Not for a server that did not answer: its answer may take seconds, and the wait for it has pauses of its own.
        if is_busy {
            self.refused += 1;
            let taken_for = self.now().since(began);
            let groups = self.groups();
            let rest = groups[at].rest(taken_for, self.refused).map(Ok);
            Box::pin(unless_closed(groups, rest)).await?;
        }
        (self.first, self.too_slow_for) = (at, Duration::ZERO);
        Ok(())
    }

    /// Enters the scopes, if all that was granted is held at the same time. Returns `None` otherwise.
    fn hold_together(&mut self, parts: Parts, began: Tick) -> Result<Option<HoldShares>, Error> {
        let Parts { mut shares, gates } = parts;
        // They are not renewed before this, so one of them may have ended.
        if self.groups().len() > 1 && !shares.iter().all(|share| share.hold_ref().is_held()) {
            drop(shares);
            self.too_slow_for += self.now().since(began);
            self.groups()[self.first].check_patience(self.too_slow_for)?;
            return Ok(None);
        }
        // The client of one group may have been closed while another group was asked for.
        self.groups()
            .iter()
            .try_for_each(|group| check_open(&group.one))?;
        let entered = self.scopes.map(|scopes| scopes.enter(gates, &mut shares));
        if !entered.transpose()?.unwrap_or(true) {
            return Ok(None);
        }
        shares.iter().for_each(HoldShare::has_guard);
        Ok(Some(shares))
    }
}

/// Waits for one group or one gate, unless the client of another group is closed meanwhile.
async fn unless_closed<T>(
    groups: &[Group],
    wait: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let closing = async {
        // The wait of a single group notices that by itself.
        let [_, _, ..] = groups else {
            return std::future::pending().await;
        };
        let sessions = groups.iter().map(|group| &group.one.registry.session);
        // Boxed, because `select_all` moves them.
        let closing = sessions.map(|session| Box::pin(session.closed.wait()));
        let ((), at, _) = select_all(closing).await;
        Err(groups[at].one.request.closed())
    };
    // In this order: what was granted counts. It is given back if another client is found closed later.
    first(wait, closing).await
}

/// Waits for one group, and then tries the gates.
async fn acquire_first(
    group: &Group,
    scopes: Option<&InScopes>,
) -> Result<Result<Parts, ClosedGate>, Error> {
    let shares = group.acquire(&group.one.request).await?;
    let gates = match scopes {
        Some(scopes) => scopes.try_gates()?,
        None => Ok(OpenGates::new()),
    };
    // If another branch of the code has closed a gate, the shares end here: nothing is held while the acquisition waits for it.
    Ok(gates.map(|gates| Parts { shares, gates }))
}

/// Passes all gates, and waits at the closed one first, if there is one. `None` without scopes.
async fn pass_gates(
    scopes: Option<&InScopes>,
    closed: Option<ClosedGate>,
) -> Result<Option<OpenGates>, Error> {
    match scopes {
        Some(scopes) => scopes.pass_gates(closed).await.map(Some),
        None => Ok(None),
    }
}

/// The groups as they are now, if scopes have closed since these were made.
fn regroup(
    groups: &[Group],
    scopes: Option<&InScopes>,
    gates: &OpenGates,
) -> Result<Option<Vec<Group>>, Error> {
    let Some(scopes) = scopes else {
        return Ok(None);
    };
    let now = scopes.groups(gates)?;
    let wanted = groups.iter().flat_map(Group::wanted);
    // Also of a key that is acquired as before: a scope that has closed lets no read in beside its write any more.
    let is_same = now.iter().flat_map(Group::wanted).eq(wanted);
    Ok((!is_same).then_some(now))
}

/// The result of an attempt on each group.
enum Tried {
    Granted(Parts),
    /// The group `at` is refused. `is_busy`: another owner holds a key of it.
    Refused {
        at: usize,
        is_busy: bool,
    },
    /// The acquisition was not polled for so long that its parts were ended.
    Absent,
}

/// Makes one attempt on each group but the one that was granted already, until one is refused.
async fn try_others(
    groups: &[Group],
    granted: Option<usize>,
    mut parts: Parts,
) -> Result<Tried, Error> {
    for (at, group) in groups.iter().enumerate() {
        if granted == Some(at) {
            continue;
        }
        let single_try = group.single_try();
        let session = &group.one.registry.session;
        // The server of this group may be silent.
        let acquired = group.in_time(group.acquire(&single_try));
        let (acquired, kept) = session.beside(|| parts, acquired).await;
        let Some(kept) = kept.take() else {
            return Ok(Tried::Absent);
        };
        parts = kept;
        match acquired
            .flatten()
            .unwrap_or_else(|| Err(group.unanswered()))
        {
            Ok(more) => parts.shares.extend(more),
            // Also if its server did not answer: waiting for that group retries the attempt until `unavailable_after`.
            Err(error) if group.one.may_pass(&error) => {
                let own = |share: &HoldShare| {
                    let hold = Arc::clone(share.hold_ref().hold());
                    (Arc::clone(share.session()), hold)
                };
                let own: Vec<_> = parts.shares.iter().map(own).collect();
                return match group.refuse_own(&own, parts).await? {
                    None => Ok(Tried::Absent),
                    Some(_) if group.is_over() => Err(error),
                    Some(_) => Ok(Tried::Refused {
                        at,
                        is_busy: error.is_busy(),
                    }),
                };
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Tried::Granted(parts))
}
