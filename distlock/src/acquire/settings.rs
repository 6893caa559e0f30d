//! What the user has asked for beside the keys, and the requests that are made from it.

use std::panic::Location;
use std::time::Duration;

use smallvec::smallvec;

use super::handle::Handle;
use crate::config::{
    MAX_NUMBER, MaxWaiters, PERMITS_AT_ONCE, check_backoff, check_hold, check_permits,
    checked_max_hold, checked_wait,
};
use crate::error::{Error, exact};
use crate::hold::HoldSettings;
use crate::resource::key::Resource;
use crate::resource::kind::{Family, Kind};
use crate::telemetry::{LockType, Meter};
use crate::wait::{ClientRequest, Request, RequestedKey, quorum};

/// How an acquisition waits and holds. What is not set is the client's.
#[derive(Clone, Debug)]
pub(super) struct AcquireSettings {
    pub(super) wait: Option<Duration>,
    pub(super) lease: Option<Duration>,
    /// How many waiters of the key there may already be. Not in `bounds`, because each request under the layer has such a limit.
    pub(super) max_waiters: Option<u32>,
    /// Boxed, since few acquisitions have any and the builder is moved often.
    pub(super) bounds: Option<Box<Bounds>>,
    /// Where in the user's code it was made.
    pub(super) call_site: &'static Location<'static>,
}

/// Limits that few acquisitions set.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    pub(super) max_hold: Option<Duration>,
    pub(super) hold_at_least: Duration,
    /// How many permits of a semaphore, if it is not 1.
    pub(super) permits: Option<u32>,
}

impl AcquireSettings {
    pub(super) fn new(call_site: &'static Location<'static>) -> Self {
        Self {
            wait: None,
            lease: None,
            max_waiters: None,
            bounds: None,
            call_site,
        }
    }

    /// Makes the request for one key, for itself or as a part of a lock of another type. Refuses invalid input before anything is sent.
    pub(super) fn checked(
        &self,
        handle: &Handle,
        lock_type: LockType,
    ) -> Result<ClientRequest, Error> {
        let key = handle.key()?.clone();
        let permits = self.checked_permits(handle.kind)?;
        handle.backoff().map_or(Ok(()), check_backoff)?;
        let registry = handle.latest_registry();
        let config = &registry.session.config;
        if let Some(lease) = self.lease {
            config.check_lease(lease)?;
        }
        let none = Bounds::default();
        let bounds = self.bounds.as_deref().unwrap_or(&none);
        let wait = checked_wait(self.wait.or(config.default_wait))?;
        bounds.check(handle, config.max_hold, key.text(), self.lease)?;
        let resource = Resource {
            kind: handle.kind,
            key,
        };
        let requested = RequestedKey {
            meter: Meter::new(lock_type, &resource.key, config.metrics_key_class),
            resource,
            permits,
            backoff: handle.backoff().copied().map(Box::new),
            through: None,
        };
        let request = Request {
            requested: smallvec![requested],
            lock_type,
            since: registry.session.now(),
            wait,
            hold: HoldSettings {
                lease: self.lease,
                max_hold: checked_max_hold(bounds.max_hold.or(config.max_hold))?,
                margin: Duration::ZERO,
                call_site: self.call_site,
            },
            is_part: false,
            takes_over: bounds.hold_at_least.is_zero(),
            max_waiters: MaxWaiters {
                per_key: self
                    .max_waiters
                    .or(config.max_waiters)
                    // Without a limit: no number of waiters gets there.
                    .unwrap_or(u32::MAX),
                total: config.max_total_waiters,
            },
            around: None,
        };
        Ok(ClientRequest { registry, request })
    }

    /// How many permits of a semaphore are acquired; 1 for a lock.
    fn checked_permits(&self, kind: Kind) -> Result<u32, Error> {
        let most = match kind.family() {
            Family::Permit => PERMITS_AT_ONCE,
            _ => MAX_NUMBER,
        };
        let bounds = self.bounds.as_deref();
        let permits = bounds.and_then(|bounds| bounds.permits).unwrap_or(1);
        check_permits(permits, most)?;
        Ok(permits)
    }

    /// Makes one request for each key. Refuses an empty list, because such an acquisition would always succeed.
    pub(super) fn checked_all(
        &self,
        handles: &[Handle],
        lock_type: LockType,
    ) -> Result<Vec<ClientRequest>, Error> {
        if handles.is_empty() {
            return Err(Error::NoKeys);
        }
        let each = handles.iter().map(|handle| self.checked(handle, lock_type));
        each.collect()
    }

    /// The same for the servers of a Redlock, whose leases have a margin.
    pub(super) fn checked_quorum(&self, handles: &[Handle]) -> Result<Vec<ClientRequest>, Error> {
        let mut requests = self.checked_all(handles, LockType::Red)?;
        for one in &mut requests {
            one.request.hold.margin = quorum::margin(one)?;
        }
        Ok(requests)
    }
}

impl Bounds {
    fn check(
        &self,
        handle: &Handle,
        of_client: Option<Duration>,
        key: &str,
        lease: Option<Duration>,
    ) -> Result<(), Error> {
        if self.hold_at_least.is_zero() {
            return Ok(());
        }
        check_hold("hold_at_least", self.hold_at_least)?;
        let most = self.max_hold.or(of_client);
        // A lease or `max_hold` ends the hold and the server's lease, so the key could not stay taken for longer.
        let end = lease.into_iter().chain(most).min();
        if let Some(end) = end.filter(|end| *end < self.hold_at_least) {
            let expected = format!("at most {}, its `lease` or `max_hold`", exact(end));
            let time = self.hold_at_least;
            return Err(Error::invalid_time("hold_at_least", time, expected));
        }
        if !handle.kind.supports_hold_at_least() {
            return Err(Error::Unsupported {
                key: key.to_owned(),
                reason: "`hold_at_least` is for reentrant, non-reentrant, spin and fenced locks",
            });
        }
        Ok(())
    }
}
