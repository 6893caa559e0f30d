//! What the benches call the floor sends the scripts of the library: they are put together of the same files.

const LIBRARY: &str = include_str!("../../../distlock/src/backend/redis/script.rs");
const BENCHES: &str = include_str!("../../benches/src/bare.rs");

/// The names of the files with scripts in a text, in their order.
fn files(text: &str) -> Vec<&str> {
    let quoted = text.split('"').skip(1).step_by(2);
    let files = quoted.filter(|text| text.ends_with(".lua"));
    files
        .map(|file| file.trim_start_matches("scripts/"))
        .collect()
}

#[test]
fn scripts_of_the_benches_are_those_of_the_library() {
    let of_library: Vec<_> = LIBRARY.lines().map(files).collect();
    let of_benches: Vec<_> = BENCHES.split("pub const").map(files).collect();
    let of_benches: Vec<_> = of_benches
        .iter()
        .filter(|files| !files.is_empty())
        .collect();
    assert!(of_benches.len() >= 7, "{of_benches:?}");
    for files in of_benches {
        assert!(
            of_library.contains(files),
            "the library has no script of {files:?}"
        );
    }
}
