//! What one client knows of its keys: who waits for each, who holds it, and how a hold goes from one to the next.

mod limits;
mod queue;
mod registry;
mod share;
mod slot;
mod yielding;

pub(crate) use self::limits::WaiterSlot;
pub(crate) use self::registry::Registry;
pub(crate) use self::share::{HoldShare, Remaining};
pub(crate) use self::slot::{NextStep, QueueSlot};
