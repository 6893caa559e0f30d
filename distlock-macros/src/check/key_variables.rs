//! Refuses keys that use variables which the function does not have, and expressions that contain a template's placeholder as
//! plain text.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::{Error, Expr, Result};

use super::plain_placeholder;
use crate::errors::Errors;
use crate::function::{Binding, Function};
use crate::options::args::Args;
use crate::options::keys::Key;

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
                errors.handle(plain_placeholder::check(template, bindings));
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
        let bracketed = |Binding { name, .. }: &&Binding| {
            let names = [name, &name.unraw()].map(|name| format!("<{name}>"));
            names.iter().any(|name| text.contains(name))
        };
        if let Some(Binding { name, .. }) = bindings.iter().find(bracketed) {
            let in_format = name.unraw();
            let message = format!(
                "`<{name}>` is plain text in an expression, because only a string literal by itself is a template; \
                 in `format!` write `{{{in_format}}}`"
            );
            return Err(Error::new(tree.span(), message));
        }
    }
    Ok(())
}
