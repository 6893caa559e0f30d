//! Acquisitions that wait, of any kind of lock: what they cost, what they learn, and when they end.

mod by_message;
mod long_waits;
mod looks;
mod max_waiters;
mod refusal;
mod unguarded;
mod until_free;
