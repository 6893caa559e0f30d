//! Refuses templates that contain a placeholder in the syntax of another library, which is plain text here.
//!
//! A key with a parameter as plain text is the same key in every call, so that unrelated calls would exclude each other.
//!
//! A word that is a parameter is refused only if the template has no placeholder for it, so that
//! `"user:id:<id>"` is accepted. Other words in braces are hash tags.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::{Error, Result};

use crate::function::Binding;
use crate::options::template::{Piece, Template};

/// What is plain text, and what was meant.
#[derive(Debug, PartialEq)]
struct Found<'t> {
    at: usize,
    written: &'t str,
    /// The expression, if the text names one.
    meant: Option<String>,
}

/// What other libraries have in place of a placeholder, and its end. An opening stands before those that it begins with.
const FORMS: [(&str, &str); 12] = [
    ("#{#", "}"),
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
];

/// Refuses a template that contains a placeholder as plain text.
pub(crate) fn check(template: &Template, bindings: &[Binding]) -> Result<()> {
    let has_own = |name: &Ident| {
        let mut own = template.placeholders();
        own.any(|placeholder| reads(placeholder.expr.to_token_stream(), name))
    };
    let names = bindings.iter().map(|binding| &binding.name);
    let names: Vec<_> = names.filter(|name| !has_own(name)).collect();
    let texts = template.pieces.iter().filter_map(|piece| match piece {
        Piece::Text(text) => Some(text),
        Piece::Placeholder(_) => None,
    });
    for text in texts {
        if let Some(found) = find(text, &names) {
            let is_whole = template.pieces.len() == 1;
            let example = bindings.iter().find(|binding| binding.name != "self");
            let example = example.map(|binding| binding.name.to_string());
            let message = message(text, is_whole, &found, example.as_deref());
            return Err(Error::new(template.literal.span(), message));
        }
    }
    Ok(())
}

/// Whether an expression reads the variable. A field of the same name is another thing.
fn reads(expr: TokenStream, variable: &Ident) -> bool {
    let mut after_point = false;
    expr.into_iter().any(|tree| {
        let is_read = match &tree {
            TokenTree::Group(group) => reads(group.stream(), variable),
            TokenTree::Ident(name) => !after_point && name == variable,
            // The name of a raw identifier has no `r#` there.
            TokenTree::Literal(text) => {
                let in_format = format!("{{{}", variable.unraw());
                text.to_string().contains(&in_format)
            }
            TokenTree::Punct(_) => false,
        };
        after_point = tree.to_string() == ".";
        is_read
    })
}

fn find<'t>(text: &'t str, names: &[&Ident]) -> Option<Found<'t>> {
    text.char_indices().find_map(|(at, _)| {
        let rest = &text[at..];
        let (length, meant) = parameter(rest, names).or_else(|| never_a_key(rest))?;
        Some(Found {
            at,
            written: &rest[..length],
            meant,
        })
    })
}

/// The length of what is written, and what it means.
type Written = (usize, Option<String>);

/// A parameter at the start of `text`, in one of the forms.
fn parameter(text: &str, names: &[&Ident]) -> Option<Written> {
    let (opening, closing) = FORMS.iter().find(|(open, _)| text.starts_with(open))?;
    let path = path(&text[opening.len()..]);
    let name = path.split('.').next()?;
    let known = names.iter().find(|known| known.unraw() == name)?;
    let end = opening.len() + path.len();
    let meant = format!("{known}{}", &path[name.len()..]);
    Some((closed(text, end, closing)?, Some(meant)))
}

/// What is a placeholder in every other language and in no key: `{0}`, `{}`, `%s`, `#p0`, `{self.id}`.
fn never_a_key(text: &str) -> Option<Written> {
    if let Some(inside) = text.strip_prefix('{') {
        let path = path(inside);
        let is_number = path.chars().all(|c| c.is_ascii_digit());
        let meant = path.starts_with("self.").then(|| path.to_owned());
        return (is_number || meant.is_some())
            .then_some((closed(text, 1 + path.len(), "}")?, meant));
    }
    let sign = text.strip_prefix('%').or_else(|| text.strip_prefix("#p"))?;
    let word = path(sign);
    let is_placeholder = if text.starts_with('%') {
        matches!(word, "s" | "d" | "u" | "v")
    } else {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_digit())
    };
    let length = text.len() - sign.len() + word.len();
    is_placeholder.then_some((length, None))
}

/// A variable and its fields at the start of `text`.
fn path(text: &str) -> &str {
    let in_path = |c: char| c == '_' || c == '.' || c.is_alphanumeric();
    let end = text.find(|c| !in_path(c)).unwrap_or(text.len());
    // A point without a field after it is text.
    text[..end].trim_end_matches('.')
}

/// The length with the closing bracket. A format spec may stand before it.
fn closed(text: &str, end: usize, closing: &str) -> Option<usize> {
    let rest = &text[end..];
    if closing.is_empty() {
        return Some(end);
    }
    let is_closed = rest.starts_with(closing) || rest.starts_with(':');
    let length = rest.find(closing).filter(|_| is_closed)?;
    Some(end + length + closing.len())
}

fn message(text: &str, is_whole: bool, found: &Found<'_>, example: Option<&str>) -> String {
    let Found { at, written, meant } = found;
    let at = *at;
    let plain = match written.as_bytes().first() {
        Some(b'<') => format!("`<{written}>` is the plain text `{written}` in a key"),
        Some(b'{') => format!("`{written}` is plain text in a key (a Redis hash tag)"),
        _ => format!("`{written}` is plain text in a key"),
    };
    let write = match (meant, example) {
        (Some(meant), _) => format!("write `<{meant}>` to render `{meant}`"),
        (None, Some(name)) => format!("name the parameter to render, e.g. `<{name}>`"),
        (None, None) => "a placeholder is `<parameter>`".to_owned(),
    };
    let literally = match (is_whole, written.starts_with('<')) {
        // An expression with `<id>` in a literal is refused, too.
        (true, true) => format!("concat!({:?}, {:?})", &text[..=at], &text[at + 1..]),
        (true, false) => format!("String::from({text:?})"),
        (false, _) => {
            return format!(
                "{plain}; {write}, or use `key = format!(..)` to lock this text itself"
            );
        }
    };
    format!("{plain}; {write}, or the expression `{literally}` to lock this text itself")
}

#[cfg(test)]
mod tests {
    use proc_macro2::Span;
    use syn::LitStr;

    use super::*;

    /// The parameters of the function in all cases.
    const PARAMETERS: [&str; 4] = ["self", "id", "tenant", "row"];

    fn checked(text: &str) -> Option<String> {
        let bindings =
            PARAMETERS.map(|name| Binding::new(Ident::new(name, Span::call_site()), &[]));
        let raw = Binding::new(Ident::new_raw("type", Span::call_site()), &[]);
        let bindings: Vec<_> = bindings.into_iter().chain([raw]).collect();
        let template = Template::parse(LitStr::new(text, Span::call_site())).unwrap();
        check(&template, &bindings)
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn parameter_in_the_syntax_of_others_is_refused_also_beside_a_placeholder() {
        for (text, plain, write) in [
            ("order:{id}", "`{id}`", "`<id>`"),
            ("order:{id:04}", "`{id:04}`", "`<id>`"),
            ("order:{row.id}", "`{row.id}`", "`<row.id>`"),
            ("order/:id", "`:id`", "`<id>`"),
            ("order/@id", "`@id`", "`<id>`"),
            ("order/#id", "`#id`", "`<id>`"),
            ("order/$id", "`$id`", "`<id>`"),
            ("order/[id]", "`[id]`", "`<id>`"),
            ("order/(id)", "`(id)`", "`<id>`"),
            ("order/%{id}", "`%{id}`", "`<id>`"),
            ("order/${id}", "`${id}`", "`<id>`"),
            ("order/#{id}", "`#{id}`", "`<id>`"),
            ("order/#{#id}", "`#{#id}`", "`<id>`"),
            ("order/<<id>>", "`<<id>>`", "`<id>`"),
            ("<tenant>:order:{id}", "`{id}`", "`<id>`"),
            ("<tenant>:id", "`:id`", "`<id>`"),
            ("{id}:<tenant>", "`{id}`", "`<id>`"),
            ("{id}:<row.id>", "`{id}`", "`<id>`"),
            ("{row}:<id>", "`{row}`", "`<row>`"),
            ("order:{0}", "`{0}`", "e.g. `<id>`"),
            ("order:{}", "`{}`", "e.g. `<id>`"),
            ("order:{:?}", "`{:?}`", "e.g. `<id>`"),
            ("<tenant>:%s", "`%s`", "e.g. `<id>`"),
            ("order:%d:<id>", "`%d`", "e.g. `<id>`"),
            ("order:#p0", "`#p0`", "e.g. `<id>`"),
            ("{self.id}:<id>", "`{self.id}`", "`<self.id>`"),
            ("order:{type}", "`{type}`", "`<r#type>`"),
            ("order:{type.id}", "`{type.id}`", "`<r#type.id>`"),
        ] {
            let said = checked(text).unwrap_or_else(|| panic!("{text} is accepted"));
            assert!(said.starts_with(plain), "{text}: {said}");
            assert!(said.contains(write), "{text}: {said}");
        }
    }

    #[test]
    fn text_that_only_looks_so_is_accepted() {
        for text in [
            "user:id:<id>",
            "{id}:<id>",
            "{row}:<row.id>",
            "{type}:<r#type>",
            "{type}:<format!(\"{type}\")>",
            "{cart}:order:<id>",
            "{cart}",
            "{cart:<id>}:lock",
            "order",
            "id",
            "order:42",
            "order:idle",
            "order:<id>:[x]",
            "50%:<id>",
            "%salt:<id>",
            "#pages:<id>",
            "a@b.example:<id>",
            "(a b)",
        ] {
            assert_eq!(checked(text), None, "{text}");
        }
    }
}
