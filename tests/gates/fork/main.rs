//! A copy of a process (`fork`) is another owner: it gets nothing of what the original holds, and takes nothing from it.
//!
//! The package turns on `uuid/fast-rng`: with it, a copy goes on with the random numbers of the original.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]

mod copy;
mod monitor;
mod on_redis;
mod without_server;

use std::process::ExitCode;

use distlock::{Error, Loss};
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::{Builder, Runtime};

/// The name of a test, and the test.
type Listed = (&'static str, fn());

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    // On this thread, one after the other: a copy has only the thread that made it.
    args.test_threads = Some(1);
    let tests = [on_redis::TESTS, without_server::TESTS].concat();
    let trial = |(name, test): Listed| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let trials = tests.into_iter().map(trial).collect();
    libtest_mimic::run(&args, trials).exit_code()
}

/// A runtime without threads.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Whether a guard has ended as one whose hold is the original's.
fn is_left_alone(ended: &Result<(), Error>) -> bool {
    let reason = Loss::NewIdentity;
    matches!(ended, Err(Error::Lost { reason: why, .. }) if *why == reason)
}
