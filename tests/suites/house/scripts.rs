//! What the benches call the floor sends the scripts of the library: they are put together of the same parts.

const LIBRARY: &str = include_str!("../../../distlock/src/backend/redis/script.rs");
const BENCHES: &str = include_str!("../../benches/src/bare.rs");

/// The files and lines that a script in a text is put together of, in their order.
fn parts(text: &str) -> Vec<&str> {
    let quoted = text.split('"').skip(1).step_by(2);
    quoted
        .map(|part| part.trim_start_matches("scripts/").trim_end_matches("\\n"))
        .collect()
}

#[test]
fn scripts_of_the_benches_are_those_of_the_library() {
    let of_library: Vec<_> = LIBRARY.split(';').map(parts).collect();
    let of_benches: Vec<_> = BENCHES.split(';').map(parts).collect();
    let is_script = |parts: &&Vec<&str>| parts.iter().any(|part| part.ends_with(".lua"));
    let of_benches: Vec<_> = of_benches.iter().filter(is_script).collect();
    assert!(of_benches.len() >= 7, "{of_benches:?}");
    for parts in of_benches {
        assert!(
            of_library.contains(parts),
            "the library has no script of {parts:?}"
        );
    }
}
