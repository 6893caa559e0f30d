//! What the scopes around an acquisition mean for it: a hold that it enters again, one that lets it in, or nothing.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::error::{Blocker, Error};
use crate::hold::NestError;
use crate::hold::lease::Term;
use crate::key::{Key, Resource};
use crate::kind::Nesting;
use crate::local::{HoldShare, Registry};
use crate::scope::{Frame, Frames, frames};
use crate::wait::{Request, RequestedKey};

/// What the scopes around an acquisition mean for it.
pub(crate) enum Enclosing {
    /// Nothing: it is an ordinary one.
    None,
    /// It entered the hold of one of them again.
    Reenter(HoldShare),
    /// One of them lets it in beside its own hold, through this place at its gate.
    Beside(Arc<OwnedSemaphorePermit>),
}

/// Enters the hold of an enclosing scope, if one has the key. The frames are those of the first poll.
pub(crate) async fn find_enclosing(
    registry: &Arc<Registry>,
    request: &mut Request,
    at: usize,
) -> Result<Enclosing, Error> {
    match frames() {
        None => Ok(Enclosing::None),
        // Boxed, for most acquisitions have nothing around them.
        around => Box::pin(search_frames(around, registry, request, at)).await,
    }
}

async fn search_frames(
    around: Frames,
    registry: &Arc<Registry>,
    request: &mut Request,
    at: usize,
) -> Result<Enclosing, Error> {
    let client = registry.session.id;
    let resource = request.requested[at].resource.clone();
    let key = &resource.key;
    while let Some((frame, nesting)) = Frame::find(&around, client, &resource) {
        if let Nesting::Never(reason) = nesting {
            return Err(Error::Nested {
                key: key.text().to_owned(),
                reason,
            });
        }
        // A frame that closed meanwhile: one further out may hold the key, or an ordinary acquisition is right.
        let Some(permit) = pass_gate(registry, request, at, &frame).await? else {
            continue;
        };
        let entered = match nesting {
            Nesting::Inside => enter_beside(registry, &mut request.requested[at], &frame, permit),
            _ => enter_again(registry, request, &frame, permit),
        };
        match entered {
            Ok(around) => return Ok(around),
            Err(NestError::Closed) => {}
            Err(NestError::Lost(loss)) => return Err(Error::lost(key.text(), loss)),
        }
    }
    Ok(Enclosing::None)
}

/// Waits for its turn among the branches of one scope. `None` where the scope ends before.
async fn pass_gate(
    registry: &Arc<Registry>,
    request: &Request,
    at: usize,
    frame: &Frame,
) -> Result<Option<OwnedSemaphorePermit>, Error> {
    let session = &registry.session;
    let Resource { kind, key } = &request.requested[at].resource;
    let (gate, permits) = frame.hold_ref().gate(kind.is_shared());
    tokio::select! {
        biased;
        permit = gate.acquire_many_owned(permits) => Ok(permit.ok()),
        () = frame.closing() => Ok(None),
        () = session.clock.sleep_until(request.deadline()) => {
            Err(request.timed_out(key, session.now(), Blocker::Sibling))
        },
    }
}

fn enter_again(
    registry: &Arc<Registry>,
    request: &Request,
    frame: &Frame,
    permit: OwnedSemaphorePermit,
) -> Result<Enclosing, NestError> {
    let session = &registry.session;
    let now = session.now();
    let term = match request.lease {
        Some(_) => Term::Until(now.after(request.first_lease(session))),
        None => Term::kept(now, request.max_hold),
    };
    let nested = frame.hold_ref().nest(frame.closed(), term, now)?;
    session.look_at(nested.hold());
    let gate = Some(Arc::new(permit));
    Ok(Enclosing::Reenter(HoldShare::new(
        Arc::clone(registry),
        nested,
        gate,
    )))
}

fn enter_beside(
    registry: &Arc<Registry>,
    requested: &mut RequestedKey,
    frame: &Frame,
    permit: OwnedSemaphorePermit,
) -> Result<Enclosing, NestError> {
    let hold_ref = frame.hold_ref();
    hold_ref.let_in(frame.closed(), registry.session.now())?;
    requested.inside = Some(hold_ref.hold().owner);
    Ok(Enclosing::Beside(Arc::new(permit)))
}

/// Refuses a closed client what it does not hold already: a scope that runs on may enter its own hold again.
pub(crate) fn check_open(registry: &Registry, key: &Key) -> Result<(), Error> {
    if registry.session.is_closed() {
        let key = key.text().to_owned();
        return Err(Error::Closed { key });
    }
    Ok(())
}
