//! What the compiler says about each mistake: one mistake per file in `ui/fail`, its messages in the `.stderr` file
//! beside it.
//!
//! Every file there must fail to compile. trybuild then checks all of them by one `cargo check`; a single case that is
//! expected to pass would make it build each file by itself. Functions that the attribute accepts are in `expansion`.
//!
//! Some messages are rustc's, so they are pinned to one version of it. `TRYBUILD=overwrite` writes the files anew: read
//! each change as the user who made that mistake.

#[rustversion::stable(1.95)]
#[test]
#[ignore = "compiles the crates once more: `bash .ci/run compile-fail`"]
fn each_mistake_is_explained() {
    trybuild::TestCases::new().compile_fail("ui/fail/*.rs");
}

// On another compiler the test fails, because a skipped test would look like a green one.
#[rustversion::not(stable(1.95))]
#[test]
#[ignore = "compiles the crates once more: `bash .ci/run compile-fail`"]
fn each_mistake_is_explained() {
    panic!(
        "the messages in ui/fail are those of rustc 1.95, and other versions word them differently: run \
         `.ci/run compile-fail`, which takes that version"
    );
}
