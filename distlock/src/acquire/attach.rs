//! A detached hold is attached to a client, or released by it.

use std::panic::Location;
use std::pin::pin;

use super::handle::Handle;
use super::observed::observed;
use super::reentry::check_open;
use super::settings::AcquireSettings;
use crate::backend::{DetachedOwner, Target, Through};
use crate::error::Error;
use crate::guard::Guard;
use crate::guard::detached::OwnedKey;
use crate::local::{HoldShare, watching};
use crate::telemetry::LockType;
use crate::wait;

/// Puts an owner of this client in the place of the one that the hold has. `handle`: its key.
pub(crate) async fn attach(
    handle: &Handle,
    hold: &OwnedKey,
    call_site: &'static Location<'static>,
) -> Result<Guard, Error> {
    let attaching = pin!(async {
        loop {
            match attach_as_it_is(handle, hold, call_site).await {
                // The client has another identity by now.
                Err(Error::Closed { .. }) if !handle.is_closed() => {}
                ended => return ended,
            }
        }
    });
    watching(|| handle.look(), attaching).await
}

async fn attach_as_it_is(
    handle: &Handle,
    hold: &OwnedKey,
    call_site: &'static Location<'static>,
) -> Result<Guard, Error> {
    let mut one = AcquireSettings::new(call_site).checked(handle, LockType::Single(handle.kind))?;
    check_open(&one)?;
    let requested = one.requested_mut();
    requested.permits = hold.permits;
    let former = DetachedOwner {
        owner: hold.owner,
        token: hold.token,
    };
    requested.through = Some(Box::new(Through::Detached(former)));
    let key = one.requested().resource.key.clone();
    let attach = || wait::attach(&one.registry, &one.request);
    let mut shares = observed(&one, [&key].into_iter(), attach).await?;
    if hold.may_come_late {
        handle
            .registry()
            .session
            .keep_ended(former_target(handle, hold)?);
    }
    Ok(Guard::new(HoldShare::new(shares.remove(0), None)))
}

/// Releases the hold. Any process may have detached it.
pub(crate) async fn release(handle: &Handle, hold: &OwnedKey) -> Result<(), Error> {
    let target = former_target(handle, hold)?;
    let session = &handle.registry().session;
    session.release_detached(target, hold.may_come_late).await
}

/// The owner that has detached the hold.
fn former_target(handle: &Handle, hold: &OwnedKey) -> Result<Target, Error> {
    let mut target = Target::of(&handle.resource()?, hold.owner);
    target.permits = hold.permits;
    Ok(target)
}
