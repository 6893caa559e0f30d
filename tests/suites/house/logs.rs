//! What the lines of the log are made of: no field of them has the form that `Debug` gives it, as in `Some(21s)`.

use std::fs;

use super::folders::folder_of;
use super::rust_files;

/// The macros that write to the log. `log!` is the one of `telemetry`.
const MACROS: [&str; 8] = [
    "log!(", "error!(", "warn!(", "info!(", "debug!(", "trace!(", "event!(", "span!(",
];

/// What stands between this place, just behind an opening parenthesis, and the closing one, without the texts.
fn arguments(code: &str) -> String {
    let (mut depth, mut is_text, mut is_escaped) = (1, false, false);
    let mut arguments = String::new();
    for c in code.chars() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_text => is_escaped = true,
            '"' => is_text = !is_text,
            _ if is_text => {}
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if !is_text {
            arguments.push(c);
        }
    }
    arguments
}

/// The fields in the calls of a file that are written by `Debug`.
fn debug_fields(source: &str) -> Vec<String> {
    let calls = MACROS.iter().flat_map(|name| source.match_indices(name));
    let calls = calls.map(|(at, name)| arguments(&source[at + name.len()..]));
    let is_debug = |field: &str| {
        let value = field.split_once('=').map_or(field, |(_, value)| value);
        value.trim_start().starts_with('?')
    };
    let fields = |call: String| {
        let fields = call.split(',').filter(|field| is_debug(field));
        fields
            .map(|field| field.trim().to_owned())
            .collect::<Vec<_>>()
    };
    calls.flat_map(fields).collect()
}

#[test]
fn no_field_of_the_log_has_a_debug_form() {
    let (mut found, mut files) = (Vec::new(), 0);
    for name in [
        "distlock",
        "distlock-tower",
        "distlock-macros",
        "distlock/cli",
    ] {
        for file in rust_files(&folder_of(name)) {
            let source = fs::read_to_string(&file).unwrap();
            let of_file = debug_fields(&source).into_iter();
            found.extend(of_file.map(|field| format!("{}: {field}", file.display())));
            files += 1;
        }
    }
    assert!(files > 200, "{files}");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn debug_form_of_a_field_is_found_wherever_it_stands() {
    let found = |code: &str| debug_fields(code).len();
    assert_eq!(found(r#"tracing::warn!(?keys, "cut off");"#), 1);
    assert_eq!(
        found(r#"log!(warn, target: TARGET, left = ?left.map(f), "a, ?b")"#),
        1
    );
    assert_eq!(found("tracing::error!(\n    %error,\n    ? odd,\n)"), 1);
    assert_eq!(
        found(r#"tracing::info!(%error, key = shown(why?), "what? {why:?}")"#),
        0
    );
}
