//! Refuses keys that use variables which the function does not have, and expressions that contain a template's placeholder as
//! plain text.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::{Error, Expr, Result};

use super::plain_placeholder;
use crate::errors::Errors;
use crate::function::{Binding, Function, async_trait_params};
use crate::options::args::Args;

/// Refuses keys that use variables which the function does not have.
///
/// rustc would report a misspelt parameter as well, but with the suggestion to replace the whole string literal by a
/// variable, because all tokens of a template have the span of the literal.
pub(crate) fn check(args: &Args, function: &Function, bindings: &[Binding]) -> Result<()> {
    let known = |name: &Ident| bindings.iter().any(|binding| binding.name == *name);
    let mut errors = Errors::default();
    for template in args.keys.templates() {
        let placeholders = template.placeholders();
        let named = placeholders.flat_map(|placeholder| variables(&placeholder.expr));
        for name in named.filter(|name| !known(name)) {
            let message = unknown_variable(name, function, bindings);
            errors.push(Error::new(template.literal.span(), message));
        }
        errors.handle(plain_placeholder::check(template, bindings));
    }
    for expr in args.keys.expressions() {
        errors.handle(plain_parameter(expr.to_token_stream(), bindings));
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
    let (renamed, written): (Vec<_>, Vec<_>) = bindings
        .iter()
        .partition(|binding| async_trait_params::is_renamed(&binding.name));
    let written: Vec<_> = written.iter().map(|b| format!("`{}`", b.name)).collect();
    let parameters = if written.is_empty() {
        "none".to_owned()
    } else {
        written.join(", ")
    };
    let hint = if renamed.is_empty() {
        String::new()
    } else {
        format!(
            "; if `{name}` is in a pattern, an attribute above this one has hidden it: put that attribute, such as \
             `#[tracing::instrument]`, below `#[distributed_lock]`"
        )
    };
    format!("`{function}` has no parameter `{name}`; its parameters: {parameters}{hint}")
}

/// Refuses `format!("pay:<id>")`, which is the same key for every id, if `id` is a parameter.
fn plain_parameter(expr: TokenStream, bindings: &[Binding]) -> Result<()> {
    for tree in expr {
        match tree {
            TokenTree::Group(group) => plain_parameter(group.stream(), bindings)?,
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let found = bindings.iter().find_map(|b| placeholder_of(&text, &b.name));
                if let Some(written) = found {
                    return Err(Error::new(literal.span(), in_an_expression(written)));
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
    Ok(())
}

/// The first `<name>`, `<name.field>` or `<name[..]>` in the text, also with blanks inside of the brackets.
fn placeholder_of<'t>(text: &'t str, name: &Ident) -> Option<&'t str> {
    let name = name.unraw().to_string();
    text.match_indices('<').find_map(|(start, _)| {
        let end = start + text[start..].find('>')?;
        let inside = text[start + 1..end].trim();
        let path = inside.strip_prefix("r#").unwrap_or(inside);
        let rest = path.strip_prefix(&name)?;
        let is_whole_name = rest.is_empty() || rest.starts_with(['.', '[', '?', ' ']);
        is_whole_name.then_some(&text[start..=end])
    })
}

fn in_an_expression(written: &str) -> String {
    let meant = written.trim_matches(['<', '>', ' ']);
    let name = meant.strip_prefix("r#").unwrap_or(meant);
    // A format string takes no more than a name.
    let is_name = name.chars().all(|c| c == '_' || c.is_alphanumeric());
    let in_format = if is_name {
        format!("`{{{name}}}`")
    } else {
        format!("`{{}}` with the argument `{meant}`")
    };
    format!(
        "`{written}` is plain text in an expression, because only a string literal that is the `key` itself, or an element \
         of `keys = [..]`, is a template; in `format!` write {in_format}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of these options on a method.
    fn refused(options: &str) -> Option<String> {
        let args: Args = syn::parse_str(options).unwrap();
        let method = "async fn pay(&self, id: u64, order: Order, r#type: u8) -> bool { true }";
        let method: Function = syn::parse_str(method).unwrap();
        let checked = check(&args, &method, &method.bindings());
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn placeholder_of_a_parameter_in_a_literal_of_an_expression_is_refused() {
        for (options, plain, write) in [
            (r#"key = format!("pay:<id>")"#, "`<id>`", "`{id}`"),
            (r##"key = String::from(r#"pay:<id>"#)"##, "`<id>`", "`{id}`"),
            (r#"key = f("pay:< id >")"#, "`< id >`", "`{id}`"),
            (r#"key = f("pay:<type>")"#, "`<type>`", "`{type}`"),
            (r#"key = f("pay:<r#type>")"#, "`<r#type>`", "`{type}`"),
            (r#"key = f("<self>:jobs")"#, "`<self>`", "`{self}`"),
            (
                r#"key = if vip { "vip:<order.id>" } else { "<id>" }"#,
                "`<order.id>`",
                "`{}` with the argument `order.id`",
            ),
            (
                r#"key = "<self.tenant>:jobs".to_owned()"#,
                "`<self.tenant>`",
                "argument `self.tenant`",
            ),
            (
                r#"keys = vec!["order:<order.0>"]"#,
                "`<order.0>`",
                "argument `order.0`",
            ),
            (
                r#"key = f("<x>:<order[0]>")"#,
                "`<order[0]>`",
                "argument `order[0]`",
            ),
            (r#"keys = ["<id>", ..["pay:<id>"]]"#, "`<id>`", "`{id}`"),
            (
                r#"keys = ["<id>", f("<order.id>")]"#,
                "`<order.id>`",
                "`order.id`",
            ),
            (
                r#"key = f("<id.len()>")"#,
                "`<id.len()>`",
                "argument `id.len()`",
            ),
        ] {
            let said = refused(options).unwrap_or_else(|| panic!("{options} is accepted"));
            assert!(said.starts_with(plain), "{options}: {said}");
            assert!(said.contains(write), "{options}: {said}");
        }
    }

    #[test]
    fn pattern_that_an_attribute_has_hidden_under_async_trait_is_explained() {
        let args: Args = syn::parse_str(r#"key = "<id>""#).unwrap();
        for (parameters, is_hint) in [("&self, __arg1: Order", true), ("&self, n: u64", false)] {
            let method = format!("fn place({parameters}) -> F {{ Box::pin(async move {{ }}) }}");
            let method: Function = syn::parse_str(&method).unwrap();
            let error = check(&args, &method, &method.bindings()).unwrap_err();
            let said = error.to_string();
            assert!(
                said.contains("no parameter `id`; its parameters: `self`"),
                "{said}"
            );
            assert!(!said.contains("__arg1"), "{said}");
            let hint = "put that attribute, such as `#[tracing::instrument]`, below";
            assert_eq!(said.contains(hint), is_hint, "{said}");
        }
    }

    #[test]
    fn other_text_in_brackets_and_comparisons_are_accepted_in_an_expression() {
        for options in [
            r#"key = format!("order:{id}")"#,
            r#"key = format!("<order_id>:{id}")"#,
            r#"key = format!("<idle>:<x.id>")"#,
            r#"key = format!("id<{id}>")"#,
            r#"key = f("a<id")"#,
            r#"key = f("<>")"#,
            "key = (id < order.id) > (order.id > id)",
            r#"key = concat!("<", "id>")"#,
            r#"keys = ["<id>", ..["a<id"]]"#,
        ] {
            assert_eq!(refused(options), None, "{options}");
        }
    }
}
