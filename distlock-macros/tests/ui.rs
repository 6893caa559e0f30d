//! What the attribute accepts, and what it says where it does not.

#[rustversion::stable(1.95)]
#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}

// A skipped test would look like a green one.
#[rustversion::not(stable(1.95))]
#[test]
fn ui() {
    panic!(
        "the texts in tests/ui/fail are rustc 1.95's, and other versions word them differently: \
         run `cargo +1.95.0 test -p distlock-macros --test ui`"
    );
}
