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
        "the messages in tests/ui are those of rustc 1.95, and other versions word them differently: run \
         `.ci/run compile-fail`, which takes that version"
    );
}
