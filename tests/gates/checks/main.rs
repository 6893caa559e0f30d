//! What distlock publishes: its API, the Rust that it needs, its dependencies and their licences. The steps `api`, `msrv`
//! and `licences` of `.ci/run` play these tests.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]

mod api;
mod licences;
mod msrv;
mod workspace;
