//! What the compiler says about mistakes in key functions: one mistake per file in `tests/ui`.
//!
//! The messages also depend on the compiler, so they are pinned to one version of it. `TRYBUILD=overwrite` renews them;
//! read each one as a user would.

/// The cases that are played unless `DISTLOCK_TEST_SIZE` is `full`: the two traits with messages of their own, and a
/// missing state.
const SAMPLE: [&str; 3] = ["no_extractor", "state_not_given", "wrong_return"];

#[rustversion::stable(1.95)]
#[test]
fn mistakes_in_key_functions_are_explained() {
    use std::io::Write as _;

    let is_full = std::env::var("DISTLOCK_TEST_SIZE").is_ok_and(|size| size == "full");
    let (size, played) = match is_full {
        true => ("all", vec!["*"]),
        false => (
            "a sample (DISTLOCK_TEST_SIZE=full for all)",
            SAMPLE.to_vec(),
        ),
    };
    // Not `println!`, which the test runner shows only for failed tests.
    writeln!(
        std::io::stderr(),
        "compile-fail cases of distlock-tower: {size}"
    )
    .unwrap();
    let cases = trybuild::TestCases::new();
    for case in played {
        cases.compile_fail(format!("tests/ui/{case}.rs"));
    }
}

#[rustversion::not(stable(1.95))]
#[test]
fn mistakes_in_key_functions_are_explained() {
    panic!(
        "these messages are pinned to Rust 1.95: run `cargo +1.95 test -p distlock-tower --test integration compile_fail`, \
         played cases: {SAMPLE:?}"
    );
}
