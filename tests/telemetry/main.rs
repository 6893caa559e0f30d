//! What a program can say of its locks: spans and events, metrics, and snapshots.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod after_panics;
mod early_end;
mod exported;
mod files;
mod leader;
mod lines;
mod outages;
mod parts;
mod recorders;
mod snapshot;
mod span_panics;
mod spans;
