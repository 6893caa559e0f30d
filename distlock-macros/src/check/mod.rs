//! Refuses functions that the attribute cannot lock.

pub(crate) mod key_variables;
mod plain_placeholder;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::quote;
use syn::spanned::Spanned as _;
use syn::{Error, Result, Type};

use crate::function::async_trait_params::{self, AsyncTraitParams};
use crate::function::return_type;
use crate::function::{Binding, Body, Function};
use crate::options::args::{Args, contains_variable};

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
    /// The call of `Box::pin` around the block, if there is one.
    pub(crate) pin: Option<Pin>,
    pub(crate) params: AsyncTraitParams,
    pub(crate) braces: Group,
}

/// `Box::pin(..)`.
pub(crate) struct Pin {
    path: TokenStream,
    parentheses: Span,
}

impl Pin {
    pub(crate) fn call(&self, argument: TokenStream) -> TokenStream {
        let mut arguments = Group::new(Delimiter::Parenthesis, argument);
        arguments.set_span(self.parentheses);
        let path = &self.path;
        quote!(#path #arguments)
    }
}

impl AsyncBody {
    /// What the user has written.
    pub(crate) fn braces(&self) -> &Group {
        match self {
            Self::Fn(braces) | Self::Block(AsyncBlock { braces, .. }) => braces,
        }
    }

    /// The variables that both the options and the body can use.
    pub(crate) fn bindings(&self, function: &Function) -> Vec<Binding> {
        let mut bindings = function.bindings();
        if let Self::Block(AsyncBlock { params, .. }) = self {
            bindings.retain(|binding| !params.is_replaced(&binding.name));
            bindings.extend(params.bindings());
        }
        bindings
    }

    /// Leaves the parameters to the keys that take them: removes the statements by which `async_trait` moves them into the
    /// block, unless the block names them for another reason.
    pub(crate) fn leave_to_keys(&mut self, args: &Args, bindings: &[Binding]) {
        let Self::Block(block) = self else {
            return;
        };
        for Binding { name, .. } in bindings {
            if args.keys.take(name) {
                let rest = async_trait_params::without_move_of(name, &block.braces);
                if !contains_variable(rest.stream(), name) {
                    block.braces = rest;
                }
            }
        }
    }

    /// Whether the future of the body must capture the variable even if the body does not use it.
    ///
    /// The future of an `async fn` owns every argument. An async block captures only what it uses. Capturing more would
    /// make its future borrow more, or make it `!Send`.
    pub(crate) fn captures(&self, name: &Ident, args: &Args) -> bool {
        // What a key has taken is gone, unless it is `Copy`. Then the outer function may keep it.
        if args.keys.take(name) && !contains_variable(self.braces().stream(), name) {
            return false;
        }
        match self {
            Self::Fn(_) => true,
            Self::Block(AsyncBlock { params, .. }) => {
                let mut bindings = params.bindings().into_iter();
                bindings.any(|binding| binding.name == *name) || args.mentions(name)
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
            if is_of_mock(&trees) {
                return error(first.span(), ON_A_MOCK);
            }
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

/// mockall copies the attributes of a method to each item of the mock that stands for it.
const ON_A_MOCK: &str = "`#[distributed_lock]` cannot go on a mock, to which `mockall::automock` copies it; mock a trait and put \
                         `#[distributed_lock]` on its implementation, or write \
                         `#[cfg_attr(not(test), distributed_lock(..))]` on the method";

/// Whether the item is the block of a mock that checks what one of its methods expected: `{ self.pay.checkpoint(); }`.
fn is_of_mock(trees: &[TokenTree]) -> bool {
    matches!(trees, [TokenTree::Group(block)] if block.stream().into_iter().any(|tree| is_keyword(&tree, "checkpoint")))
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
    let message = if sig.ident.to_string().starts_with("expect_") {
        ON_A_MOCK
    } else if return_type::is_future(&function.return_type()) {
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
            let pin = Pin {
                path: path.iter().cloned().collect(),
                parentheses: argument.span(),
            };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of an item that cannot be locked.
    fn refusal(item: TokenStream) -> String {
        let refused = function(item).and_then(|function| async_body(&function));
        refused.map(drop).unwrap_err().to_string()
    }

    #[test]
    fn items_of_a_mock_are_refused_with_what_to_write_and_others_as_before() {
        let expects = quote!(
            pub fn expect_pay(&mut self) -> &mut __pay::Expectation {
                self.pay.expect()
            }
        );
        let checks = quote!({
            self.pay.checkpoint();
        });
        for item in [expects, checks] {
            let text = refusal(item);
            assert!(text.contains("mock a trait"), "{text}");
        }
        let plain = quote!(
            fn pay(id: u64) -> u64 {
                id
            }
        );
        for (item, says) in [
            (plain, "needs an `async fn`"),
            (quote!({ 1 }), "put it on each method"),
        ] {
            let text = refusal(item);
            assert!(text.contains(says) && !text.contains("mock"), "{text}");
        }
    }

    #[test]
    fn function_whose_future_is_an_alias_is_told_what_its_body_has_to_be() {
        let boxed = quote!(
            fn pay(id: u64) -> BoxFuture<'static, u64> {
                async move { id }.boxed()
            }
        );
        let text = refusal(boxed);
        assert!(text.contains("as its whole body"), "{text}");
    }
}
