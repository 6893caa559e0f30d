//! An acquisition from its first request to its end: one span, one count, and an event if it was refused.

use crate::error::Error;
use crate::resource::key::Key;
use crate::sync::foreign;
use crate::telemetry::{self, AcquireSpan, InSpan, Meter, Outcome};
use crate::wait::ClientRequest;

/// Observes an acquisition that talks to the server or waits, which is all but re-entries. Dropped before its end, the
/// acquisition counts as cancelled.
struct Observation<'a> {
    // The request, or the first of several.
    one: &'a ClientRequest,
    /// Boxed, since it is a part of the future of each acquisition. There is none unless somebody collects spans.
    span: Option<Box<AcquireSpan>>,
    is_over: bool,
}

/// Runs an acquisition, and observes it from now on. `keys`: all its keys. No `async fn`, which would keep all
/// arguments while the acquisition waits.
pub(super) fn observed<'k, T, F: Future<Output = Result<T, Error>>>(
    one: &ClientRequest,
    keys: impl Iterator<Item = &'k Key>,
    acquire: impl FnOnce() -> F,
) -> impl Future<Output = Result<T, Error>> {
    let observation = Observation::begin(one, keys);
    async move {
        // Made here, and not by the caller: a large future that is moved costs more than all else in this function.
        let acquired = match observation.span.as_deref() {
            None => acquire().await,
            Some(span) => InSpan::new(span, Box::pin(acquire())).await,
        };
        observation.end(acquired.as_ref().err());
        acquired
    }
}

impl<'a> Observation<'a> {
    fn begin<'k>(one: &'a ClientRequest, keys: impl Iterator<Item = &'k Key>) -> Self {
        let client = one.registry.session.id;
        let request = &one.request;
        Self {
            one,
            span: telemetry::acquire_span(request.lock_type, keys, client, request.wait),
            is_over: false,
        }
    }

    fn end(mut self, error: Option<&Error>) {
        self.is_over = true;
        self.record(Outcome::of(error));
        if let Some(error) = error {
            telemetry::acquire_refused(self.span.as_deref(), error);
        }
    }

    fn record(&self, outcome: Outcome) {
        // Reading the clock is a part of the cost of a grant.
        if self.span.is_none() && !Meter::COUNTS {
            return;
        }
        let session = &self.one.registry.session;
        let waited = session.now().since(self.one.request.since);
        telemetry::acquire_ended(self.span.as_deref(), outcome, waited);
        self.one.requested().meter.acquired(outcome, waited);
    }
}

impl Drop for Observation<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // As one call: it may register metrics.
            foreign::make(|| self.record(Outcome::Cancelled));
        }
    }
}
