//! What the compiler says of mistakes in key functions: one mistake per file in `tests/ui`.
//!
//! The texts are the compiler's too, so they are pinned to one version of it. `TRYBUILD=overwrite` renews them; read
//! each as its user would.
#![cfg(feature = "axum")]

#[rustversion::stable(1.95)]
#[test]
fn mistakes_in_key_functions_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

#[rustversion::not(stable(1.95))]
#[test]
fn mistakes_in_key_functions_are_explained() {
    panic!(
        "these texts are pinned to Rust 1.95: run `cargo +1.95 test -p distlock-tower --test compile_fail`"
    );
}
