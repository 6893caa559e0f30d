//! What the scopes around an acquisition mean for it: a hold that it enters again, one that lets it in, or nothing.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::error::{Blocker, Error};
use crate::hold::Nested;
use crate::hold::lease::Term;
use crate::key::Key;
use crate::kind::Nesting;
use crate::local::{Part, Registry};
use crate::scope::{Frame, Frames, frames};
use crate::wait::{Ask, Wanted};

/// What the scopes around an acquisition mean for it.
pub(crate) enum Around {
    /// Nothing: it is an ordinary one.
    Nothing,
    /// It entered the hold of one of them again.
    Again(Part),
    /// One of them lets it in beside its own hold, through this place at its gate.
    Inside(Arc<OwnedSemaphorePermit>),
}

/// Enters the hold of an enclosing scope, if one has the key. The frames are those of the first poll.
pub(crate) async fn look_around(
    registry: &Arc<Registry>,
    ask: &mut Ask,
    at: usize,
) -> Result<Around, Error> {
    match frames() {
        None => Ok(Around::Nothing),
        // Boxed, for most acquisitions have nothing around them.
        around => Box::pin(look_through(around, registry, ask, at)).await,
    }
}

async fn look_through(
    around: Frames,
    registry: &Arc<Registry>,
    ask: &mut Ask,
    at: usize,
) -> Result<Around, Error> {
    let client = registry.keeper.id;
    let Wanted { kind, key, .. } = ask.wanted[at].clone();
    while let Some((frame, nesting)) = Frame::find(&around, client, kind, &key) {
        if let Nesting::Never(reason) = nesting {
            return Err(Error::Nested {
                key: key.text().to_owned(),
                reason,
            });
        }
        // A frame that closed meanwhile: one further out may hold the key, or an ordinary acquisition is right.
        let Some(place) = pass_gate(registry, ask, at, &frame).await? else {
            continue;
        };
        let entered = match nesting {
            Nesting::Inside => enter_beside(registry, &mut ask.wanted[at], &frame, place),
            _ => enter_again(registry, ask, &frame, place),
        };
        match entered {
            Ok(around) => return Ok(around),
            Err(Nested::Closed) => {}
            Err(Nested::Lost(loss)) => return Err(Error::lost(key.text(), loss)),
        }
    }
    Ok(Around::Nothing)
}

/// Waits for its turn among the branches of one scope. `None` where the scope ends before.
async fn pass_gate(
    registry: &Arc<Registry>,
    ask: &Ask,
    at: usize,
    frame: &Frame,
) -> Result<Option<OwnedSemaphorePermit>, Error> {
    let keeper = &registry.keeper;
    let Wanted { kind, key, .. } = &ask.wanted[at];
    let (gate, places) = frame.tenure().gate(kind.is_shared());
    tokio::select! {
        biased;
        place = gate.acquire_many_owned(places) => Ok(place.ok()),
        () = frame.closing() => Ok(None),
        () = keeper.clock.sleep_until(ask.deadline()) => {
            Err(ask.timed_out(key, keeper.now(), Blocker::Sibling))
        },
    }
}

fn enter_again(
    registry: &Arc<Registry>,
    ask: &Ask,
    frame: &Frame,
    place: OwnedSemaphorePermit,
) -> Result<Around, Nested> {
    let keeper = &registry.keeper;
    let now = keeper.now();
    let term = match ask.lease {
        Some(_) => Term::Until(now.after(ask.first_lease(keeper))),
        None => Term::kept(now, ask.max_hold),
    };
    let nested = frame.tenure().nest(frame.closed(), term, now)?;
    keeper.look_at(nested.hold());
    let gate = Some(Arc::new(place));
    Ok(Around::Again(Part::new(Arc::clone(registry), nested, gate)))
}

fn enter_beside(
    registry: &Arc<Registry>,
    wanted: &mut Wanted,
    frame: &Frame,
    place: OwnedSemaphorePermit,
) -> Result<Around, Nested> {
    let tenure = frame.tenure();
    tenure.let_in(frame.closed(), registry.keeper.now())?;
    wanted.inside = Some(tenure.hold().owner);
    Ok(Around::Inside(Arc::new(place)))
}

/// Refuses a closed client what it does not hold already: a scope that runs on may enter its own hold again.
pub(crate) fn check_open(registry: &Registry, key: &Key) -> Result<(), Error> {
    if registry.keeper.is_closed() {
        let key = key.text().to_owned();
        return Err(Error::Closed { key });
    }
    Ok(())
}
