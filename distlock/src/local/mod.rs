//! What one client knows of its keys: who waits for each, who holds it, and how a hold passes from one to the next.
//!
//! A guard ends in [`share`](HoldShare), which asks the [`registry`](Registry) what follows. The registry asks the key's
//! [`queue`], which decides whether the hold is handed over to the next local waiter. If it is not, the share has it
//! released by [`hold::release`](crate::hold), or in the background by the releaser.

mod limits;
mod queue;
mod registry;
mod share;
mod slot;
mod yielding;

pub(crate) use self::limits::WaiterSlot;
pub(crate) use self::registry::Registry;
pub(crate) use self::share::{HoldShare, Remaining};
pub(crate) use self::slot::{Joining, NextStep, QueueSlot};
