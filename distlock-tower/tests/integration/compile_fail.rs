//! What the compiler says about mistakes in key functions: one mistake per file in `tests/ui`.
//!
//! The messages also depend on the compiler, so they are pinned to one version of it. `TRYBUILD=overwrite` renews them;
//! read each one as a user would.

#[rustversion::stable(1.95)]
#[test]
#[ignore = "compiles the crates once more: `bash .ci/run compile-fail`"]
fn mistakes_in_key_functions_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

#[rustversion::not(stable(1.95))]
#[test]
#[ignore = "compiles the crates once more: `bash .ci/run compile-fail`"]
fn mistakes_in_key_functions_are_explained() {
    panic!(
        "these messages are pinned to Rust 1.95: run `cargo +1.95 test -p distlock-tower --test integration -- --ignored \
         compile_fail`"
    );
}
