//! Functions that the attribute accepts. They compile without warnings, including those of clippy's pedantic lints, and
//! each call returns the value of its body.

#![deny(warnings, clippy::pedantic)]
// These lints ask for documentation and `#[must_use]`, not for other code. `attributes` denies the first again, to show
// that documentation stays on its function.
#![allow(missing_docs, clippy::missing_errors_doc, clippy::must_use_candidate)]

pub mod async_trait;
pub mod attributes;
pub mod boxed_future;
pub mod clients;
pub mod condition;
pub mod crate_path;
pub mod debug_handler;
pub mod depth;
pub mod dollar_crate;
pub mod early_return;
pub mod forbidden_lints;
pub mod free_fn;
pub mod generics;
pub mod handlers;
pub mod hold_at_least;
pub mod impl_trait;
pub mod instrument;
pub mod key_expressions;
pub mod keys;
pub mod lifetimes;
pub mod lints;
pub mod macro_rules;
pub mod methods;
pub mod mode;
pub mod no_prelude;
pub mod on_unavailable;
pub mod patterns;
pub mod send;
pub mod shadowed_prelude;
pub mod token;
pub mod tokio_main;
pub mod trait_methods;
pub mod two_attributes;

use std::fmt::Debug;

use distlock::{Client, with_client};

/// Runs a call on a new in-memory client, unless the attribute names another one.
async fn run<F: Future>(call: F) -> F::Output {
    with_client(&Client::in_memory(), call).await
}

/// Runs a call that must succeed, and returns its value.
async fn ok<T, E: Debug>(call: impl Future<Output = Result<T, E>>) -> T {
    run(call).await.expect("the call succeeds")
}

// A file without its `pub mod` line would not be compiled at all.
#[test]
fn every_file_is_a_module() {
    let modules = include_str!("mod.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/expansion");
    for file in std::fs::read_dir(folder).expect("the folder exists") {
        let path = file.expect("the file is readable").path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let name = name.expect("file names are UTF-8");
        let line = format!("\npub mod {name};\n");
        assert!(
            name == "mod" || modules.contains(&line),
            "{name} is missing"
        );
    }
}
