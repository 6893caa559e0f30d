//! A hold: how long it lasts, how it is lost, and how it leaves its guard.

mod confirmed;
mod detached;
mod lease;
mod loss;
mod lost_value;
mod time_left;
