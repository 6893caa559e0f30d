//! What the reentrant lock promises.

mod acquire;
mod branches;
mod cancel;
mod close;
mod confirmed;
mod detached;
mod dropped;
mod handover;
mod identity;
mod lease;
mod loss;
mod lost_value;
mod outage;
mod outcome;
mod reentry;
mod runtime;
mod storm;
mod subscriptions;
mod time_left;
mod unpolled;
mod waiting;
