//! The key template: text in which `<expr>` is a Rust expression, `<<` and `>>` the brackets themselves.
//!
//! A placeholder ends at the first `>` at which what was read so far is an expression, so
//! `<x.get::<Vec<u8>>(0).len()>` needs no escapes; a comparison needs parentheses.
//! Braces are text: `"{cart:<id>}:lock"` is a Redis hash tag.

use proc_macro2::Span;
use syn::{Error, Expr, LitStr, Result};

/// A template as written.
pub(crate) struct Template {
    pub(crate) literal: LitStr,
    pub(crate) pieces: Vec<Piece>,
}

/// What a template is made of, in order.
pub(crate) enum Piece {
    Text(String),
    Placeholder(Placeholder),
}

/// One placeholder. Its tokens are spanned at the literal: the compiler offers nothing finer.
pub(crate) struct Placeholder {
    pub(crate) source: String,
    pub(crate) expr: Expr,
}

impl Template {
    pub(crate) fn parse(literal: LitStr) -> Result<Self> {
        let text = literal.value();
        let pieces = split(&text)
            .and_then(|pieces| pieces.into_iter().map(|p| p.parse(&literal)).collect())
            .map_err(|message| Error::new(literal.span(), message))?;
        Ok(Self { literal, pieces })
    }

    /// The placeholders alone.
    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Placeholder(placeholder) => Some(placeholder),
            Piece::Text(_) => None,
        })
    }
}

#[derive(Debug, PartialEq)]
enum Raw<'t> {
    Text(String),
    Placeholder(&'t str),
}

impl Raw<'_> {
    fn parse(self, literal: &LitStr) -> std::result::Result<Piece, String> {
        match self {
            Raw::Text(text) => Ok(Piece::Text(text)),
            Raw::Placeholder(source) => {
                // At the literal's own hygiene rustc would offer to put a variable in its place.
                let span = literal.span().resolved_at(Span::call_site());
                let expr = LitStr::new(source, span)
                    .parse()
                    .map_err(|_| not_an_expression(source))?;
                let source = source.to_owned();
                Ok(Piece::Placeholder(Placeholder { source, expr }))
            }
        }
    }
}

fn split(text: &str) -> std::result::Result<Vec<Raw<'_>>, String> {
    if text.is_empty() {
        return Err("an empty key locks nothing; say what to lock, e.g. `\"pay:<id>\"`".into());
    }
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("<<") || rest.starts_with(">>") {
            plain.push(c);
            rest = &rest[2..];
        } else if c == '<' {
            let source = placeholder(&rest[1..])?;
            rest = &rest[source.len() + 2..];
            if !plain.is_empty() {
                pieces.push(Raw::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Raw::Placeholder(source));
        } else if c == '>' {
            return Err(stray());
        } else {
            plain.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    if !plain.is_empty() {
        pieces.push(Raw::Text(plain));
    }
    Ok(pieces)
}

/// The expression at the start of `rest`, which begins behind its `<`.
fn placeholder(rest: &str) -> std::result::Result<&str, String> {
    let is_expression = |end: &usize| syn::parse_str::<Expr>(&rest[..*end]).is_ok();
    if let Some(end) = closing_brackets(rest).into_iter().find(is_expression) {
        return Ok(&rest[..end]);
    }
    Err(match rest.split_once('>') {
        None => "unclosed `<` in key template (a literal `<` is written `<<`)".into(),
        Some((source, _)) if source.trim().is_empty() => {
            "empty placeholder `<>` in key template; say what to render, e.g. `<id>`".into()
        }
        Some((source, _)) => not_an_expression(source),
    })
}

/// Where a placeholder may end: each `>` outside of quotes and with its brackets closed.
///
/// Only such text goes to the compiler's lexer, which reports an unclosed quote or bracket on its own.
fn closing_brackets(rest: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut open = 0_usize;
    let mut at = 0;
    while let Some(c) = rest[at..].chars().next() {
        match c {
            '>' if open == 0 => ends.push(at),
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' if open == 0 => break,
            ')' | ']' | '}' => open -= 1,
            _ => {}
        }
        match quoted(&rest[at..]) {
            Some(0) => break,
            Some(length) => at += length,
            None => at += c.len_utf8(),
        }
    }
    ends
}

/// The length of the string or character literal that `text` starts with; 0 where it is not closed.
fn quoted(text: &str) -> Option<usize> {
    let mut chars = text.chars();
    let quote = chars.next()?;
    // `'a` is a lifetime or a label unless one character (or an escape) and a quote follow.
    let is_literal = match quote {
        '"' => true,
        '\'' => chars.next() == Some('\\') || chars.next() == Some('\''),
        _ => false,
    };
    is_literal.then(|| end_of_literal(text, quote))
}

fn end_of_literal(text: &str, quote: char) -> usize {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return at + 1;
        }
        if c == '\\' {
            chars.next();
        }
    }
    0
}

fn stray() -> String {
    "stray `>` in key template (a literal `>` is written `>>`, and a comparison in a placeholder \
     needs parentheses: `<(a > b)>`)"
        .into()
}

fn not_an_expression(source: &str) -> String {
    let hint = if source.contains(':') {
        "; a format spec needs `key = format!(..)`"
    } else {
        " (a literal `<` is written `<<`)"
    };
    format!("`<{source}>` in key template is no Rust expression{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(template: &str) -> String {
        match split(template) {
            Ok(pieces) => pieces.iter().map(show).collect::<Vec<_>>().join(" "),
            Err(message) => format!("error: {message}"),
        }
    }

    fn show(piece: &Raw<'_>) -> String {
        match piece {
            Raw::Text(text) => format!("{text:?}"),
            Raw::Placeholder(source) => format!("[{source}]"),
        }
    }

    #[test]
    fn placeholder_ends_at_the_first_bracket_that_makes_an_expression() {
        for (template, pieces) in [
            ("daily", r#""daily""#),
            ("pay:<id>", r#""pay:" [id]"#),
            ("<a><b>", "[a] [b]"),
            ("<a>:<b.c>", r#"[a] ":" [b.c]"#),
            ("< id >", "[ id ]"),
            ("<self.tenant>/x", r#"[self.tenant] "/x""#),
            (
                "<x.get::<Vec<u8>>(0).len()>!",
                r#"[x.get::<Vec<u8>>(0).len()] "!""#,
            ),
            ("<(a > b)>", "[(a > b)]"),
            (r#"<x.join(">")>"#, r#"[x.join(">")]"#),
            (r#"<x.join("\">")>"#, r#"[x.join("\">")]"#),
            ("<x.find('>')>", "[x.find('>')]"),
            (r"<x.find('\'')>", r"[x.find('\'')]"),
            ("<x.find('(')>", "[x.find('(')]"),
            ("<x.f::<'static>()>", "[x.f::<'static>()]"),
            ("<m[&k]>", "[m[&k]]"),
            ("{cart:<id>}:lock", r#""{cart:" [id] "}:lock""#),
            ("a<<b>>c", r#""a<b>c""#),
            ("<<id>>", r#""<id>""#),
            ("<<<id>>>", r#""<" [id] ">""#),
            ("ключ:<id>ü", r#""ключ:" [id] "ü""#),
        ] {
            assert_eq!(shown(template), pieces, "{template}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (template, message) in [
            ("", "error: an empty key"),
            ("<id", "error: unclosed `<`"),
            ("a<", "error: unclosed `<`"),
            ("<>", "error: empty placeholder"),
            ("< >", "error: empty placeholder"),
            ("id>", "error: stray `>`"),
            ("<a > b>", "error: stray `>`"),
            (
                "<id:04>",
                "error: `<id:04>` in key template is no Rust expression; a format",
            ),
            (
                "<a b>",
                "error: `<a b>` in key template is no Rust expression (a literal",
            ),
            ("<f(a>", "error: `<f(a>` in key template is no"),
            (r#"<"a>"#, r#"error: `<"a>` in key template is no"#),
            ("<a)>", "error: `<a)>` in key template is no"),
        ] {
            let shown = shown(template);
            assert!(shown.starts_with(message), "{template} says {shown}");
        }
    }
}
