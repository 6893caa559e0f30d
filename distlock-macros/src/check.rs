//! Refuses functions that the attribute cannot lock, and keys that use variables which the function does not have.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, Result, Type};

use crate::args::Args;
use crate::async_trait_params::AsyncTraitParams;
use crate::function::{Binding, Body, Function};
use crate::keys::Key;
use crate::return_type;
use crate::template::{Piece, Template};

/// The async body that is going to run under the lock.
pub(crate) enum AsyncBody {
    /// The body of an `async fn`.
    Fn(Group),
    /// The block in `Box::pin(async move { .. })` or `async move { .. }`. `async_trait` generates the first; users write
    /// both to require a `Send` future.
    Block(AsyncBlock),
}

/// An async block that is the whole body of a function.
pub(crate) struct AsyncBlock {
    /// The keyword `async`. A `move` behind it is dropped, because the expansion always writes one.
    pub(crate) asyncness: Ident,
    /// The path `Box::pin`, if a call of it surrounds the block.
    pub(crate) pin: Option<TokenStream>,
    pub(crate) params: AsyncTraitParams,
    pub(crate) braces: Group,
}

impl AsyncBody {
    /// The variables that both the options and the body can use.
    pub(crate) fn bindings(&self, function: &Function) -> Vec<Binding> {
        let mut bindings = function.bindings();
        if let Self::Block(AsyncBlock { params, .. }) = self {
            bindings.retain(|binding| !params.is_replaced(&binding.name));
            bindings.extend(params.bindings.iter().cloned().map(Binding::unconditional));
        }
        bindings
    }

    /// Whether the future of the body must capture the variable even if the body does not use it.
    ///
    /// The future of an `async fn` owns every argument. An async block captures only what it uses. Capturing more would
    /// make its future borrow more, or make it `!Send`.
    pub(crate) fn captures(&self, name: &Ident, args: &Args) -> bool {
        match self {
            Self::Fn(_) => true,
            Self::Block(AsyncBlock { params, .. }) => {
                params.bindings.contains(name) || args.mentions(name)
            }
        }
    }
}

/// Parses the annotated function, and refuses other items.
pub(crate) fn function(item: TokenStream) -> Result<Function> {
    syn::parse2(item.clone()).map_err(|syntax| {
        let trees: Vec<_> = item.into_iter().collect();
        let Some(first) = trees.first() else {
            return syntax;
        };
        let Some(at) = trees.iter().position(|tree| is_keyword(tree, "fn")) else {
            return error(
                first.span(),
                "`#[distributed_lock]` goes on an `async fn`; in a trait or an impl, put it on each method",
            );
        };
        match trees[..at].iter().find(|tree| is_keyword(tree, "gen")) {
            Some(keyword) => error(
                keyword.span(),
                "`#[distributed_lock]` cannot go on a `gen fn`: the lock would be released before the first item; \
                 lock the code that uses the items",
            ),
            None => syntax,
        }
    })
}

fn is_keyword(tree: &TokenTree, keyword: &str) -> bool {
    matches!(tree, TokenTree::Ident(ident) if ident == keyword)
}

/// Finds the async body, and refuses functions that have none.
pub(crate) fn async_body(function: &Function) -> Result<AsyncBody> {
    let sig = &function.sig;
    let Some(body) = &function.body else {
        return Err(error(
            sig.ident.span(),
            "a required method has no body to lock; put `#[distributed_lock]` on its implementations",
        ));
    };
    if let Some(constness) = &sig.constness {
        return Err(error(
            constness.span,
            "`#[distributed_lock]` cannot go on a `const fn`, because acquiring a lock waits; remove `const`",
        ));
    }
    if let Some(abi) = &sig.abi {
        return Err(error(
            abi.extern_token.span,
            "`#[distributed_lock]` cannot go on an `extern` function; put it on an `async fn` that this function calls",
        ));
    }
    if sig.asyncness.is_some() {
        return Ok(AsyncBody::Fn(body.braces.clone()));
    }
    let message = if return_type::future_output(&function.return_type()).is_some() {
        "`#[distributed_lock]` on a function that returns a future needs `async move { .. }` or \
         `Box::pin(async move { .. })` as its whole body: code outside of it would run without the lock"
    } else {
        "`#[distributed_lock]` needs an `async fn`; if another attribute (such as `#[tokio::main]`) \
         removes `async`, put `#[distributed_lock]` above it"
    };
    let no_block = || error(sig.fn_token.span, message);
    async_block(body).map(AsyncBody::Block).ok_or_else(no_block)
}

fn error(span: Span, message: &str) -> Error {
    Error::new(span, message)
}

/// The async block of a body that consists of nothing else.
///
/// This matches tokens, because the body is not parsed. Code beside the block would run without the lock, so such a body
/// is refused.
fn async_block(body: &Body) -> Option<AsyncBlock> {
    let trees: Vec<_> = body.braces.stream().into_iter().collect();
    let (pin, whole) = match trees.as_slice() {
        [path @ .., TokenTree::Group(argument)]
            if is_box_pin(path) && argument.delimiter() == Delimiter::Parenthesis =>
        {
            let pin = path.iter().cloned().collect();
            (Some(pin), argument.stream().into_iter().collect())
        }
        _ => (None, trees),
    };
    let (asyncness, braces) = async_keyword_and_braces(&whole)?;
    let (params, braces) = AsyncTraitParams::extract(&braces);
    Some(AsyncBlock {
        asyncness,
        pin,
        params,
        braces,
    })
}

fn is_box_pin(path: &[TokenTree]) -> bool {
    let in_path = |tree: &TokenTree| matches!(tree, TokenTree::Ident(_)) || tree.to_string() == ":";
    let text: String = path.iter().map(ToString::to_string).collect();
    path.iter().all(in_path) && (text == "Box::pin" || text.ends_with("::Box::pin"))
}

/// Splits `async {..}` or `async move {..}`, with or without a trailing comma.
fn async_keyword_and_braces(trees: &[TokenTree]) -> Option<(Ident, Group)> {
    let trees = match trees {
        [rest @ .., TokenTree::Punct(comma)] if comma.as_char() == ',' => rest,
        all => all,
    };
    let (asyncness, block) = match trees {
        [TokenTree::Ident(a), TokenTree::Group(block)] => (a, block),
        [TokenTree::Ident(a), m, TokenTree::Group(block)] if is_keyword(m, "move") => (a, block),
        _ => return None,
    };
    (asyncness == "async" && block.delimiter() == Delimiter::Brace)
        .then(|| (asyncness.clone(), block.clone()))
}

/// Refuses a function that never returns, because it has to return when the lock is refused or lost.
pub(crate) fn return_type(function: &Function) -> Result<()> {
    match function.return_type() {
        Type::Never(never) => Err(error(
            never.bang_token.span(),
            "this function must be able to return, because its lock can be refused or lost; make it return \
             `Result<std::convert::Infallible, E>`",
        )),
        _ => Ok(()),
    }
}

/// Refuses a token that would shadow a parameter.
pub(crate) fn token(args: &Args, bindings: &[Binding]) -> Result<()> {
    match &args.token {
        Some(token) if bindings.iter().any(|binding| binding.name == *token) => {
            let message = format!("`{token}` is already a parameter; give the token another name");
            Err(error(token.span(), &message))
        }
        _ => Ok(()),
    }
}

/// Refuses keys that use variables which the function does not have.
///
/// rustc would report a misspelt parameter as well, but with the suggestion to replace the whole string literal by a
/// variable, because all tokens of a template have the span of the literal.
pub(crate) fn key_variables(args: &Args, function: &Function, bindings: &[Binding]) -> Result<()> {
    let known = |name: &Ident| bindings.iter().any(|binding| binding.name == *name);
    for key in args.keys.listed() {
        match key {
            Key::Template(template) => {
                for placeholder in template.placeholders() {
                    if let Some(name) = variables(&placeholder.expr)
                        .into_iter()
                        .find(|name| !known(name))
                    {
                        let message = unknown_variable(name, function, bindings);
                        return Err(Error::new(template.literal.span(), message));
                    }
                }
                braces_around_parameter(template, bindings)?;
            }
            Key::Expr(expr) => brackets_around_parameter(expr.to_token_stream(), bindings)?,
        }
    }
    Ok(())
}

/// The variables that an expression reads: paths of one segment that do not start with a capital letter.
///
/// Closures, blocks and macros introduce variables themselves; they are left to rustc.
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
            let args = call.args.iter().flat_map(variables);
            variables(&call.receiver).into_iter().chain(args).collect()
        }
        // The callee is skipped: it is usually a function, which is no variable.
        Expr::Call(call) => call.args.iter().flat_map(variables).collect(),
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

/// Refuses `"pay:{id}"`, which is the same key for every id, if `id` is a parameter and the key has no placeholder.
fn braces_around_parameter(template: &Template, bindings: &[Binding]) -> Result<()> {
    let [Piece::Text(text)] = template.pieces.as_slice() else {
        return Ok(());
    };
    let braced = |binding: &&Binding| text.contains(&format!("{{{}}}", binding.name));
    match bindings.iter().find(braced) {
        Some(Binding { name, .. }) => Err(Error::new(
            template.literal.span(),
            format!(
                "`{{{name}}}` is plain text in a key (a Redis hash tag); write `<{name}>` to render `{name}`"
            ),
        )),
        None => Ok(()),
    }
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
            return Err(error(tree.span(), &message));
        }
    }
    Ok(())
}
