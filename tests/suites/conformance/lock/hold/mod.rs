//! A hold: how long it lasts, how it is lost, and how it leaves its guard.

mod confirmed;
mod detached;
mod hold_at_least;
mod lease;
mod loss;
mod lost_value;
mod max_hold;
mod renewals;
mod time_left;
