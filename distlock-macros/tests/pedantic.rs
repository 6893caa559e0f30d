//! The accepted cases of `ui/pass` as modules, so that clippy sees their expansions too.

#![deny(warnings, clippy::pedantic)]
// Each case is written as a crate of its own: what it exports, and its `main`, nothing uses here.
#![allow(dead_code, unreachable_pub)]

#[path = "ui/pass/async_trait.rs"]
mod async_trait;
#[path = "ui/pass/attributes.rs"]
mod attributes;
#[path = "ui/pass/boxed_future.rs"]
mod boxed_future;
#[path = "ui/pass/clients.rs"]
mod clients;
#[path = "ui/pass/condition.rs"]
mod condition;
#[path = "ui/pass/crate_path.rs"]
mod crate_path;
#[path = "ui/pass/debug_handler.rs"]
mod debug_handler;
#[path = "ui/pass/early_return.rs"]
mod early_return;
#[path = "ui/pass/free_fn.rs"]
mod free_fn;
#[path = "ui/pass/generics.rs"]
mod generics;
#[path = "ui/pass/handlers.rs"]
mod handlers;
#[path = "ui/pass/hold_at_least.rs"]
mod hold_at_least;
#[path = "ui/pass/impl_trait.rs"]
mod impl_trait;
#[path = "ui/pass/instrument.rs"]
mod instrument;
#[path = "ui/pass/key_expressions.rs"]
mod key_expressions;
#[path = "ui/pass/keys.rs"]
mod keys;
#[path = "ui/pass/lifetimes.rs"]
mod lifetimes;
#[path = "ui/pass/macro_rules.rs"]
mod macro_rules;
#[path = "ui/pass/methods.rs"]
mod methods;
#[path = "ui/pass/mode.rs"]
mod mode;
#[path = "ui/pass/on_unavailable.rs"]
mod on_unavailable;
#[path = "ui/pass/patterns.rs"]
mod patterns;
#[path = "ui/pass/send.rs"]
mod send;
#[path = "ui/pass/shadowed_prelude.rs"]
mod shadowed_prelude;
#[path = "ui/pass/token.rs"]
mod token;
#[path = "ui/pass/trait_methods.rs"]
mod trait_methods;
#[path = "ui/pass/two_attributes.rs"]
mod two_attributes;

/// Cases that cannot be modules: their `$crate`, or their `main`, is that of the whole crate.
const CRATES: [&str; 2] = ["dollar_crate", "tokio_main"];

#[test]
fn every_case_is_here() {
    let here = include_str!("pedantic.rs");
    let cases = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ui/pass"));
    for case in cases.expect("the cases are there") {
        let case = case.expect("a case has a name").path();
        let name = case.file_stem().and_then(|name| name.to_str());
        let name = name.expect("it is one of ours");
        let is_module = here.contains(&format!("\"ui/pass/{name}.rs\""));
        assert!(is_module || CRATES.contains(&name), "{name} is missing");
    }
}
