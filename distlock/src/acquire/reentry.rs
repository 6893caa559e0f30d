//! The effect of the enclosing scopes on an acquisition: it re-enters the hold of a scope, or a scope admits it, or no
//! scope has its key.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::backend::Through;
use crate::error::{Blocker, Error};
use crate::hold::{Around, GatePermit, Hold, HoldView, NestError};
use crate::local::{HoldShare, OpenShare};
use crate::resource::key::Resource;
use crate::resource::kind::Nesting;
use crate::scope::{Frame, Frames, frames};
use crate::sync::{first, foreign};
use crate::wait::{ClientRequest, RequestedKey};

/// The effect of the enclosing scopes on an acquisition.
pub(crate) enum Enclosing {
    /// None: it is an ordinary acquisition.
    None,
    /// It re-entered the hold of a scope, whose guard has this view.
    Reenter(HoldShare, HoldView),
    /// A scope admits it beside its own hold.
    Beside(Beside),
}

/// The admission of an acquisition beside the hold of a scope, which ends with the scope and with its guard.
pub(crate) struct Beside {
    frame: Frame,
    /// Of the gate of the scope.
    pub(super) permit: Arc<GatePermit>,
}

/// A gate that an acquisition has passed: no other branch of the scope excludes it.
pub(crate) struct OpenGate {
    frame: Frame,
    nesting: Nesting,
    permit: GatePermit,
}

/// A gate that another branch of the scope keeps closed.
pub(crate) struct ClosedGate {
    /// The index of its request.
    at: usize,
    frame: Frame,
}

/// For each request, the gate that it has passed; `None` if no scope has its key.
pub(crate) type OpenGates = SmallVec<[Option<OpenGate>; 1]>;

/// Re-enters the hold of an enclosing scope if one of them has the key. Must be called at the first poll of an
/// acquisition: its scopes are those of the code that polls it, and not those of the code that made it.
pub(crate) async fn find_enclosing(one: &mut ClientRequest) -> Result<Enclosing, Error> {
    match within_scopes(std::iter::once(&mut *one)) {
        None => Ok(Enclosing::None),
        // Boxed, since most acquisitions have no scope around them.
        Some(frames) => Box::pin(search_frames(frames, one)).await,
    }
}

/// Searches the scopes anew after the admission by one of them has ended. From now on the acquisition does not go through its hold.
pub(super) async fn search_again(
    ended: Beside,
    one: &mut ClientRequest,
) -> Result<Enclosing, Error> {
    let Beside { frame, permit } = ended;
    // Before the wait at another gate: while it waits, it keeps no gate closed.
    drop(permit);
    one.requested_mut().through = None;
    // Those further in do not have the key.
    search_frames(frame.outwards(), one).await
}

/// The scopes around the code that runs now, if there are any; the requests remember them.
pub(crate) fn within_scopes<'a>(
    requests: impl Iterator<Item = &'a mut ClientRequest>,
) -> Option<Frames> {
    let innermost = frames()?;
    for one in requests {
        let around: Arc<dyn Around> = Arc::clone(&innermost) as _;
        one.request.around = Some(around);
    }
    Some(Some(innermost))
}

async fn search_frames(frames: Frames, one: &mut ClientRequest) -> Result<Enclosing, Error> {
    loop {
        let gates = pass_gates(&frames, &[&*one], None).await?;
        let Some(gate) = gates.into_iter().flatten().next() else {
            return Ok(Enclosing::None);
        };
        if let Some(entered) = gate.enter(one)? {
            return Ok(entered);
        }
        // The frame closed after the gate let the acquisition in. A frame further out may hold the key. If none does,
        // the acquisition is an ordinary one.
    }
}

/// Passes the gates of all requests whose keys the scopes have. While it waits at a gate that another branch has closed, it
/// keeps no other gate closed. `closed`: the gate that it waits at first.
pub(crate) async fn pass_gates(
    frames: &Frames,
    requests: &[&ClientRequest],
    mut closed: Option<ClosedGate>,
) -> Result<OpenGates, Error> {
    loop {
        let passed = match closed {
            Some(gate) => gate.wait(requests).await?,
            None => None,
        };
        match try_gates(frames, requests, passed)? {
            Ok(gates) => return Ok(gates),
            Err(gate) => closed = Some(gate),
        }
    }
}

/// Passes all gates, or returns one that is closed. `passed`: the permit of a gate that was waited for, with the index of its
/// request.
pub(crate) fn try_gates(
    frames: &Frames,
    requests: &[&ClientRequest],
    mut passed: Option<(usize, GatePermit)>,
) -> Result<Result<OpenGates, ClosedGate>, Error> {
    let mut gates = OpenGates::new();
    for (at, one) in requests.iter().enumerate() {
        let client = one.registry.session.id;
        let resource = &one.requested().resource;
        let Resource { kind, key } = resource;
        let found = Frame::find(frames, client, resource);
        let Some((frame, nesting)) = found else {
            gates.push(None);
            continue;
        };
        if let Nesting::Never(reason) = nesting {
            return Err(Error::deadlock(key.text(), reason));
        }
        let (gate, permits) = frame.hold_ref().gate(kind.is_shared());
        let waited_for = passed
            // Compared by its address: while it waited, the scope may have closed, and a frame further out has another gate.
            .take_if(|(other, permit)| *other == at && permit.is_of(&gate));
        let permit = match waited_for {
            Some((_, permit)) => Some(permit),
            None => gate
                .try_acquire_many_owned(permits)
                .ok()
                .map(GatePermit::new),
        };
        let Some(permit) = permit else {
            // The gates that were passed so far open again here: two branches that keep one each would wait for each other.
            return Ok(Err(ClosedGate { at, frame }));
        };
        gates.push(Some(OpenGate {
            frame,
            nesting,
            permit,
        }));
    }
    Ok(Ok(gates))
}

impl ClosedGate {
    /// Waits until no other branch of the scope excludes the acquisition. Returns `None` if the scope ends before that.
    async fn wait(self, requests: &[&ClientRequest]) -> Result<Option<(usize, GatePermit)>, Error> {
        let Self { at, frame } = self;
        let one = requests[at];
        let session = &one.registry.session;
        let Resource { kind, key } = &one.requested().resource;
        let (gate, permits) = frame.hold_ref().gate(kind.is_shared());
        let opens = async {
            let permit = foreign::contain_wakers(gate.acquire_many_owned(permits)).await;
            Ok(permit.ok().map(|permit| (at, GatePermit::new(permit))))
        };
        let others = async {
            crate::sync::select! {
                // In this order: if the scope has closed, the key is acquired like any other, even after the deadline.
                biased;
                () = frame.closing() => Ok(None),
                () = session.clock.sleep_until(one.request.deadline()) => {
                    Err(one.request.timed_out(session, key, Blocker::Sibling, None))
                },
            }
        };
        // In this order: an open gate counts, even if the scope has ended or the deadline has passed by now.
        first(opens, others).await
    }
}

impl OpenGate {
    /// Whether the scope admits the acquisition beside its own hold.
    pub(crate) fn is_beside(&self) -> bool {
        self.nesting == Nesting::Inside
    }

    /// The scope's hold.
    pub(crate) fn outer(&self) -> &Arc<Hold> {
        self.frame.hold_ref().hold()
    }

    /// Enters the hold of the scope. Returns `None` if the scope closed after the gate was passed.
    pub(crate) fn enter(self, one: &mut ClientRequest) -> Result<Option<Enclosing>, Error> {
        let entered = match self.nesting {
            Nesting::Inside => self.enter_beside(one),
            _ => self.reenter(one),
        };
        match entered {
            Ok(enclosing) => Ok(Some(enclosing)),
            Err(error) => {
                let key = one.requested().resource.key.text();
                error.into_error(key).map_or(Ok(None), Err)
            }
        }
    }

    fn reenter(self, one: &ClientRequest) -> Result<Enclosing, NestError> {
        let ClientRequest { registry, request } = one;
        let session = &registry.session;
        let term = request.hold.term(
            session.now(),
            request.first_lease(session),
            session.config.lease_margin,
        );
        let Self { frame, permit, .. } = self;
        let outer = frame.hold_ref();
        let nested = outer.nest(frame.closed(), term, request.hold.margin)?;
        // Made first: its drop ends the re-entry, whatever happens from now on.
        let open = OpenShare::new(registry, nested);
        let share = HoldShare::new(open, Some(Arc::new(permit)));
        session.schedule_check(share.hold_ref().hold());
        Ok(Enclosing::Reenter(share, frame.view().clone()))
    }

    fn enter_beside(self, one: &mut ClientRequest) -> Result<Enclosing, NestError> {
        let Self { frame, permit, .. } = self;
        let outer = frame.hold_ref();
        outer.let_in(frame.closed())?;
        let RequestedKey { through, .. } = one.requested_mut();
        *through = Some(Box::new(Through::Write(outer.hold().owner())));
        let permit = Arc::new(permit);
        Ok(Enclosing::Beside(Beside { frame, permit }))
    }
}

impl Beside {
    /// Completes when the scope has closed or its guard has ended.
    pub(super) async fn ended(&self) {
        crate::sync::select! {
            biased;
            () = self.frame.closing() => {},
            () = self.frame.hold_ref().ended() => {},
        }
    }

    /// Whether the scope has closed or its guard has ended.
    pub(super) fn has_ended(&self) -> bool {
        let let_in = self.frame.hold_ref().let_in(self.frame.closed());
        // If the hold is lost, what the server has granted by now does not depend on it.
        matches!(let_in, Err(NestError::Closed))
    }
}

/// Refuses an ordinary acquisition of a closed client. A scope that is still running may re-enter its own hold.
pub(crate) fn check_open(one: &ClientRequest) -> Result<(), Error> {
    // Only a hint for an early error. A client that is closed later is found closed in the queue.
    if one.registry.session.closed.is_set() {
        return Err(one.request.closed());
    }
    Ok(())
}
