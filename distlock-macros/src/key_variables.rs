//! Refuses keys that use variables which the function does not have, and keys that contain a parameter as plain text.
//!
//! A key with a parameter as plain text is the same key in every call, so that unrelated calls would exclude each other.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::{Error, Expr, Result};

use crate::args::Args;
use crate::errors::Errors;
use crate::function::{Binding, Function};
use crate::keys::Key;
use crate::template::{Piece, Template};

/// Refuses keys that use variables which the function does not have.
///
/// rustc would report a misspelt parameter as well, but with the suggestion to replace the whole string literal by a
/// variable, because all tokens of a template have the span of the literal.
pub(crate) fn check(args: &Args, function: &Function, bindings: &[Binding]) -> Result<()> {
    let known = |name: &Ident| bindings.iter().any(|binding| binding.name == *name);
    let mut errors = Errors::default();
    for key in args.keys.listed() {
        match key {
            Key::Template(template) => {
                let placeholders = template.placeholders();
                let named = placeholders.flat_map(|placeholder| variables(&placeholder.expr));
                for name in named.filter(|name| !known(name)) {
                    let message = unknown_variable(name, function, bindings);
                    errors.push(Error::new(template.literal.span(), message));
                }
                errors.handle(plain_parameter(template, bindings));
            }
            Key::Expr(expr) => {
                errors.handle(brackets_around_parameter(expr.to_token_stream(), bindings));
            }
        }
    }
    errors.finish_with(())
}

/// The variables that an expression reads: paths of one segment that do not start with a capital letter.
///
/// Closures, blocks and macros introduce variables themselves; they are left to rustc. So is a name that is an argument by
/// itself, because it may be the name of a function.
fn variables(expr: &Expr) -> Vec<&Ident> {
    match expr {
        Expr::Path(path) => path
            .path
            .get_ident()
            .into_iter()
            .filter(|name| !name.to_string().starts_with(char::is_uppercase))
            .collect(),
        Expr::Field(field) => variables(&field.base),
        Expr::MethodCall(call) => {
            let args = call.args.iter().filter(is_no_name).flat_map(variables);
            variables(&call.receiver).into_iter().chain(args).collect()
        }
        // The callee is skipped: it is usually a function, which is no variable.
        Expr::Call(call) => {
            let args = call.args.iter().filter(is_no_name);
            args.flat_map(variables).collect()
        }
        Expr::Index(index) => [&*index.expr, &*index.index]
            .into_iter()
            .flat_map(variables)
            .collect(),
        Expr::Binary(binary) => [&*binary.left, &*binary.right]
            .into_iter()
            .flat_map(variables)
            .collect(),
        Expr::Paren(paren) => variables(&paren.expr),
        Expr::Reference(reference) => variables(&reference.expr),
        Expr::Unary(unary) => variables(&unary.expr),
        Expr::Cast(cast) => variables(&cast.expr),
        Expr::Try(question_mark) => variables(&question_mark.expr),
        _ => Vec::new(),
    }
}

fn is_no_name(argument: &&Expr) -> bool {
    !matches!(argument, Expr::Path(_))
}

fn unknown_variable(name: &Ident, function: &Function, bindings: &[Binding]) -> String {
    let function = &function.sig.ident;
    if name == "self" {
        return format!("`{function}` has no `self` parameter");
    }
    let names: Vec<_> = bindings.iter().map(|b| format!("`{}`", b.name)).collect();
    let parameters = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    format!("`{function}` has no parameter `{name}`; its parameters: {parameters}")
}

/// Refuses a key without a placeholder that contains a parameter in the syntax of another template language.
fn plain_parameter(template: &Template, bindings: &[Binding]) -> Result<()> {
    let [Piece::Text(text)] = template.pieces.as_slice() else {
        return Ok(());
    };
    let found = text.char_indices().find_map(|(at, _)| {
        let (written, meant) = foreign_placeholder(&text[at..], bindings)?;
        Some((at, written, meant))
    });
    let Some((at, written, meant)) = found else {
        return Ok(());
    };
    let (plain, literally) = match written.as_bytes()[0] {
        // An expression with `<id>` in a literal is refused, too.
        b'<' => (
            format!("`<{written}>` is the plain text `{written}` in a key"),
            format!("concat!({:?}, {:?})", &text[..=at], &text[at + 1..]),
        ),
        b'{' => (
            format!("`{written}` is plain text in a key (a Redis hash tag)"),
            format!("String::from({text:?})"),
        ),
        _ => (
            format!("`{written}` is plain text in a key"),
            format!("String::from({text:?})"),
        ),
    };
    let message = format!(
        "{plain}; write `<{meant}>` to render `{meant}`, or the expression `{literally}` to lock this text itself"
    );
    Err(Error::new(template.literal.span(), message))
}

/// A parameter at the start of `text` as others write it: `#id`, `$id`, `{id}`, `#{id}`, `${id}`, or `<id>`, which was
/// `<<id>>` in the literal. Returns it as written, and the expression that it means.
fn foreign_placeholder<'t>(text: &'t str, bindings: &[Binding]) -> Option<(&'t str, &'t str)> {
    // An opening stands before those that it begins with.
    let openings = [
        ("#{#", "}"),
        ("#{", "}"),
        ("${", "}"),
        ("{", "}"),
        ("<", ">"),
        ("#", ""),
        ("$", ""),
    ];
    let (opening, closing) = openings.iter().find(|(open, _)| text.starts_with(open))?;
    let rest = &text[opening.len()..];
    let in_path = |c: char| c == '_' || c == '.' || c.is_alphanumeric();
    let path = &rest[..rest.find(|c| !in_path(c)).unwrap_or(rest.len())];
    let path = path.trim_end_matches('.');
    let name = path.split('.').next()?;
    bindings.iter().find(|binding| binding.name == name)?;
    let end = opening.len() + path.len();
    if closing.is_empty() {
        return Some((&text[..end], path));
    }
    // A format spec may stand between the name and the bracket.
    let is_closed = [closing, ":"]
        .iter()
        .any(|next| text[end..].starts_with(*next));
    let length = text[end..].find(closing).filter(|_| is_closed)?;
    Some((&text[..end + length + closing.len()], path))
}

/// Refuses `format!("pay:<id>")`, which is the same key for every id, if `id` is a parameter.
fn brackets_around_parameter(expr: TokenStream, bindings: &[Binding]) -> Result<()> {
    for tree in expr {
        let text = match &tree {
            TokenTree::Group(group) => {
                brackets_around_parameter(group.stream(), bindings)?;
                continue;
            }
            other => other.to_string(),
        };
        let bracketed = |binding: &&Binding| text.contains(&format!("<{}>", binding.name));
        if let Some(Binding { name, .. }) = bindings.iter().find(bracketed) {
            let message = format!(
                "`<{name}>` is plain text in an expression, because only a string literal by itself is a template; \
                 in `format!` write `{{{name}}}`"
            );
            return Err(Error::new(tree.span(), message));
        }
    }
    Ok(())
}
