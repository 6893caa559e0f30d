//! The suites that run on the test harness of the standard library, as one program: what they share is compiled and linked
//! once.
//!
//! `faults` is a program of its own, since it prints a table of what it injected. `open_files` is one because it counts
//! the open files of its process, and `memory` because it counts with an allocator of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod api;
mod auto_traits;
mod conformance;
mod corpus;
mod differential;
mod docs;
mod flaws;
mod found;
mod harness;
mod house;
mod redis;
mod samples;
