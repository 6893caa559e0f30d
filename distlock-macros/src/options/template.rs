//! The key template: `<expr>` is a Rust expression, `<<` and `>>` are literal brackets, anything else is text.
//!
//! A placeholder ends at the first `>` for which the text since `<` is an expression. So
//! `<x.get::<Vec<u8>>(0).len()>` needs no escapes, but a comparison needs parentheses.
//! Braces are text, because `"{cart:<id>}:lock"` contains a Redis hash tag.

use proc_macro2::Span;
use syn::{Error, Expr, LitStr, Result};

/// A parsed template.
pub(crate) struct Template {
    pub(crate) literal: LitStr,
    pub(crate) pieces: Vec<Piece>,
}

/// A piece of a template.
pub(crate) enum Piece {
    Text(String),
    Placeholder(Placeholder),
}

/// One placeholder. Its tokens have the span of the literal, because stable Rust has no spans inside a literal.
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

    /// The placeholders, without the text.
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
                // With the hygiene of the literal, rustc would suggest replacing the literal by a variable.
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
        return Err("the key is empty; name the key to lock, e.g. `\"pay:<id>\"`".into());
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

/// The expression at the start of `rest`, which is the text after `<`.
fn placeholder(rest: &str) -> std::result::Result<&str, String> {
    let is_expression = |end: &usize| syn::parse_str::<Expr>(&rest[..*end]).is_ok();
    if let Some(end) = closing_brackets(rest).into_iter().find(is_expression) {
        return Ok(&rest[..end]);
    }
    Err(match rest.split_once('>') {
        None => "unclosed `<` in key template; write `<<` for a literal `<`".into(),
        Some((source, _)) if source.trim().is_empty() => {
            "empty placeholder `<>` in key template; name what to render, e.g. `<id>`".into()
        }
        Some((source, _)) => not_an_expression(source),
    })
}

/// The positions where a placeholder may end: each `>` outside of quotes and brackets.
///
/// Only text between such positions is parsed: the lexer of the compiler itself reports an unclosed quote or bracket, in
/// addition to our error.
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

/// The length of the string or character literal at the start of `text`; 0 if the literal is not closed.
fn quoted(text: &str) -> Option<usize> {
    let mut chars = text.chars();
    let quote = chars.next()?;
    // `'a` is a lifetime or a label, unless one character or an escape follows, and then a quote.
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
    "unexpected `>` in key template; write `>>` for a literal `>`, and put a comparison in parentheses: \
     `<(a > b)>`"
        .into()
}

fn not_an_expression(source: &str) -> String {
    let hint = if source.contains(':') {
        "; for a format spec use `key = format!(..)`"
    } else {
        "; write `<<` for a literal `<`"
    };
    format!("`<{source}>` in key template is not a Rust expression{hint}")
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
    fn placeholder_ends_at_the_first_bracket_that_completes_an_expression() {
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
    fn each_mistake_has_its_message() {
        for (template, message) in [
            ("", "error: the key is empty"),
            ("<id", "error: unclosed `<`"),
            ("a<", "error: unclosed `<`"),
            ("<>", "error: empty placeholder"),
            ("< >", "error: empty placeholder"),
            ("id>", "error: unexpected `>`"),
            ("<a > b>", "error: unexpected `>`"),
            (
                "<id:04>",
                "error: `<id:04>` in key template is not a Rust expression; for a format",
            ),
            (
                "<a b>",
                "error: `<a b>` in key template is not a Rust expression; write `<<`",
            ),
            ("<f(a>", "error: `<f(a>` in key template is not"),
            (r#"<"a>"#, r#"error: `<"a>` in key template is not"#),
            ("<a)>", "error: `<a)>` in key template is not"),
        ] {
            let shown = shown(template);
            assert!(shown.starts_with(message), "{template} says {shown}");
        }
    }
}
