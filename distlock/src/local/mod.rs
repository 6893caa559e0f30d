//! What one client knows of its keys: the waiters and the holder of each key, and the hand-over from one to the next.
//!
//! The end of a guard begins in its [`share`](HoldShare), which ends either by name or by its drop. [`end`] counts the guard out
//! and asks the key's [`queue`], which decides whether the hold is handed over to the next local waiter. If it is not,
//! [`session::release`](crate::session) releases it: its caller sends the release, or the releaser does so in the background.

mod checked_heads;
mod end;
mod entry;
mod lives;
mod long_waits;
mod queue;
mod registry;
mod share;
mod shared_holds;
mod slot;
pub(crate) mod snapshot;
mod turns;
mod used_kinds;
mod waits;
mod waker;

pub(crate) use self::lives::{Lives, watching};
pub(crate) use self::queue::Ticket;
pub(crate) use self::registry::Registry;
pub(crate) use self::share::{HoldShare, HoldShares, OpenShare, OpenShares, ShareRef, end_all};
pub(crate) use self::slot::{Joining, NextStep, QueueSlot, SlotState};
pub(crate) use self::turns::RoundRobin;
pub(crate) use self::waits::Wait;
pub(crate) use self::waits::limits::WaiterSlot;
