//! Placeholders in the syntax of other libraries, which are plain text in a [`Template`](super::Template).

/// A placeholder as others write it, and the name in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Foreign<'t> {
    pub(super) written: &'t str,
    pub(super) name: &'t str,
}

/// What a template has in place of a placeholder, and its end. A bracket may enclose anything that is a name, a number or
/// nothing; a sign stands before a name.
const FORMS: [(&str, &str); 13] = [
    ("#{", "}"),
    ("${", "}"),
    ("%{", "}"),
    ("{", "}"),
    ("<", ">"),
    ("[", "]"),
    ("(", ")"),
    (":", ""),
    ("@", ""),
    ("#", ""),
    ("$", ""),
    ("%", ""),
    ("", ""),
];

/// The sources of values that [`Template`](super::Template) has itself, written without brackets.
const SOURCES: [&str; 4] = ["path.", "query.", "header.", "uri.path"];

/// The first placeholder of others in a text.
pub(super) fn placeholder(text: &str) -> Option<Foreign<'_>> {
    let mut starts = text.char_indices().map(|(at, _)| at);
    starts.find_map(|at| {
        let follows_name = text[..at].ends_with(|c: char| is_in_name(c));
        FORMS.iter().find_map(|(opening, closing)| {
            let rest = text[at..].strip_prefix(opening)?;
            let (name, length) = match (*opening, *closing) {
                ("", _) => (source(rest).filter(|_| !follows_name)?, 0),
                (_, "") => (sign(rest)?, 0),
                (_, closing) => (bracketed(rest, closing)?, closing.len()),
            };
            let end = at + opening.len() + name.len() + length;
            let written = &text[at..end];
            let name = name.trim_start_matches('*');
            let name = name.split(':').next().unwrap_or(name);
            Some(Foreign { written, name })
        })
    })
}

/// The names in braces: `id` of `order:{id}`.
pub(super) fn braced(text: &str) -> impl Iterator<Item = &str> {
    let after = text.split('{').skip(1);
    let inside = after.filter_map(|after| after.split_once('}'));
    let names = inside.map(|(name, _)| name.trim_start_matches('*'));
    names.filter(|name| !name.is_empty() && name.chars().all(is_in_name))
}

fn is_in_name(c: char) -> bool {
    c == '_' || c == '.' || c.is_alphanumeric()
}

/// The name at the start of a text, without a point at its end.
fn name(text: &str) -> &str {
    let end = text.find(|c| !is_in_name(c)).unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}

/// A name that is no number.
fn sign(text: &str) -> Option<&str> {
    Some(name(text)).filter(|name| name.starts_with(|c: char| c == '_' || c.is_alphabetic()))
}

/// What stands between brackets: a name, a number, nothing, and a format after it.
fn bracketed<'t>(text: &'t str, closing: &str) -> Option<&'t str> {
    let inside = &text[..text.find(closing)?];
    let is_placeholder = |c: char| is_in_name(c) || matches!(c, ':' | '*' | '?');
    inside.chars().all(is_placeholder).then_some(inside)
}

fn source(text: &str) -> Option<&str> {
    let name = name(text);
    let names = SOURCES.iter().any(|source| match source.strip_suffix('.') {
        Some(_) => name.len() > source.len() && name.starts_with(source),
        None => name == *source,
    });
    names.then_some(name)
}
