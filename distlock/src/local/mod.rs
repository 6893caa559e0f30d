//! What one client knows of its keys: the waiters and the holder of each key, and the hand-over from one to the next.
//!
//! The end of a guard begins in its [`share`](HoldShare). The share asks the [`registry`](Registry) what has to be
//! done. The registry asks the key's [`queue`], which decides whether the hold is handed over to the next local waiter.
//! If it is not, [`session::release`](crate::session) releases it, or the releaser does so in the background.

mod cycles;
mod limits;
mod lives;
mod numbered;
mod place;
mod queue;
mod registry;
mod round_robin;
mod runner;
mod share;
mod signal;
mod slot;
pub(crate) mod snapshot;
mod waiting;
mod waits;
mod yielding;

pub(crate) use self::limits::WaiterSlot;
pub(crate) use self::lives::{Lives, watching};
pub(crate) use self::place::PlaceState;
pub(crate) use self::queue::Ticket;
pub(crate) use self::registry::Registry;
pub(crate) use self::share::{HoldShare, HoldShares, OpenShare, OpenShares, Remaining, ShareRef};
pub(crate) use self::slot::{Joining, NextStep, QueueSlot};
pub(crate) use self::waits::{Around, Wait};
