//! What this crate reports about itself: the [events] that it logs, the span of an [acquisition], and what is counted in the
//! [meter].

#![allow(
    clippy::disallowed_methods,
    reason = "they are called here, and nowhere else"
)]

mod acquisition;
mod events;
mod labels;
mod meter;
#[cfg(feature = "metrics")]
mod metrics;

pub(crate) use self::acquisition::{
    AcquireSpan, InSpan, acquire_ended, acquire_refused, acquire_span,
};
#[cfg(feature = "redis")]
pub(crate) use self::events::servers::*;
pub(crate) use self::events::*;
pub(crate) use self::labels::{LockType, Outcome};
pub(crate) use self::meter::{CountedRelease, CountedWaiter, Meter, renewals};
#[cfg(feature = "redis")]
pub(crate) use self::meter::{note_connected, note_reconnected};
