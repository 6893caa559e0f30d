//! What the reentrant lock promises.

mod acquire;
mod branches;
mod cancel;
mod client;
mod dropped;
mod handover;
mod hold;
mod reentry;
mod server;
mod storm;
mod unpolled;
mod waiting;
