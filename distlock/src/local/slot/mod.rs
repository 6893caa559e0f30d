//! One waiter's slot in the queue of a key: its next [step], how it [leaves](leave) the queue, what it [notes](notes) for the
//! waiters behind it, and its [state] among the slots of a waiter for several keys.

mod leave;
mod notes;
mod state;
mod step;

pub(crate) use self::state::SlotState;
pub(crate) use self::step::{Joining, NextStep, QueueSlot};
