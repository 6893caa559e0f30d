//! The effect of the enclosing scopes on an acquisition: it re-enters the hold of a scope, or a scope admits it, or no
//! scope has its key.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::error::{Blocker, Error};
use crate::hold::HoldView;
use crate::hold::NestError;
use crate::hold::lease::Term;
use crate::key::Resource;
use crate::kind::Nesting;
use crate::local::{Around, HoldShare};
use crate::scope::{Frame, Frames, frames};
use crate::wait::{ClientRequest, RequestedKey};

/// The effect of the enclosing scopes on an acquisition.
pub(crate) enum Enclosing {
    /// None: it is an ordinary acquisition.
    None,
    /// It re-entered the hold of a scope, whose guard has this view.
    Reenter(HoldShare, HoldView),
    /// A scope admits it beside its own hold, with this permit of its gate.
    Beside(Arc<OwnedSemaphorePermit>),
}

/// Re-enters the hold of an enclosing scope if one of them has the key. Must be called at the first poll of an
/// acquisition: its scopes are those of the code that polls it, and not those of the code that made it.
pub(crate) async fn find_enclosing(one: &mut ClientRequest) -> Result<Enclosing, Error> {
    match frames() {
        None => Ok(Enclosing::None),
        Some(innermost) => {
            let around: Arc<dyn Around> = Arc::clone(&innermost) as _;
            one.request.around = Some(around);
            // Boxed, since most acquisitions have no scope around them.
            Box::pin(search_frames(Some(innermost), one)).await
        }
    }
}

async fn search_frames(frames: Frames, one: &mut ClientRequest) -> Result<Enclosing, Error> {
    let client = one.registry.session.id;
    let resource = one.requested().resource.clone();
    let key = &resource.key;
    while let Some((frame, nesting)) = Frame::find(&frames, client, &resource) {
        if let Nesting::Never(reason) = nesting {
            return Err(Error::Deadlock {
                key: key.text().to_owned(),
                reason,
            });
        }
        // The frame closed in the meantime. A frame further out may hold the key. If none does, the acquisition is an
        // ordinary one.
        let Some(permit) = pass_gate(one, &frame).await? else {
            continue;
        };
        let entered = match nesting {
            Nesting::Inside => enter_beside(one, &frame, permit),
            _ => reenter(one, &frame, permit),
        };
        match entered {
            Ok(enclosing) => return Ok(enclosing),
            // The frame closed after the gate let the acquisition in: search again, as above.
            Err(NestError::Closed) => {}
            Err(NestError::Lost(loss)) => return Err(Error::lost(key.text(), loss)),
        }
    }
    Ok(Enclosing::None)
}

/// Waits until no other branch of the scope excludes it. Returns `None` if the scope ends before that.
async fn pass_gate(
    one: &ClientRequest,
    frame: &Frame,
) -> Result<Option<OwnedSemaphorePermit>, Error> {
    let session = &one.registry.session;
    let Resource { kind, key } = &one.requested().resource;
    let (gate, permits) = frame.hold_ref().gate(kind.is_shared());
    tokio::select! {
        // In this order: an open gate counts, even if the scope has ended or the deadline has passed by now.
        biased;
        permit = gate.acquire_many_owned(permits) => Ok(permit.ok()),
        () = frame.closing() => Ok(None),
        () = session.clock.sleep_until(one.request.deadline()) => {
            Err(one.request.timed_out(key, session.now(), Blocker::Sibling))
        },
    }
}

fn reenter(
    one: &ClientRequest,
    frame: &Frame,
    permit: OwnedSemaphorePermit,
) -> Result<Enclosing, NestError> {
    let ClientRequest { registry, request } = one;
    let session = &registry.session;
    let now = session.now();
    let term = match request.lease {
        Some(_) => Term::Until(now.after(request.first_lease(session))),
        None => Term::kept(now, request.max_hold),
    };
    let outer = frame.hold_ref();
    let nested = outer.nest(frame.closed(), term, request.margin)?;
    // Made first: its drop ends the re-entry, whatever happens from here on.
    let share = HoldShare::new(Arc::clone(registry), nested, Some(Arc::new(permit)));
    session.look_at(share.hold_ref().hold());
    Ok(Enclosing::Reenter(share, frame.view().clone()))
}

fn enter_beside(
    one: &mut ClientRequest,
    frame: &Frame,
    permit: OwnedSemaphorePermit,
) -> Result<Enclosing, NestError> {
    let outer = frame.hold_ref();
    outer.let_in(frame.closed())?;
    let RequestedKey { inside, .. } = one.requested_mut();
    *inside = Some(outer.hold().owner);
    Ok(Enclosing::Beside(Arc::new(permit)))
}

/// Refuses an ordinary acquisition of a closed client. A scope that is still running may re-enter its own hold.
pub(crate) fn check_open(one: &ClientRequest) -> Result<(), Error> {
    if one.registry.session.is_closed() {
        let key = one.requested().resource.key.text().to_owned();
        return Err(Error::Closed { key });
    }
    Ok(())
}
