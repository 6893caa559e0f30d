//! Acquisitions that wait, of any kind of lock: what they cost, what they are told, and when they end.

mod bounds;
mod long_waits;
mod looks;
mod refusal;
mod unguarded;
mod until_free;
