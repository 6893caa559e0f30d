//! The tokens that stand in for the body.
//!
//! Of the user's function everything but the body stays as it is. Names of the expansion are spanned
//! `mixed_site`, so neither side sees the other's variables; what it calls is named through one import
//! of its own, so the body and its surroundings may shadow anything, `Ok` and `Result` included.

mod enter;
mod keys;

use proc_macro2::{Group, Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::Type;
use syn::spanned::Spanned as _;

use crate::args::Args;
use crate::check::{AsyncBlock, AsyncBody};
use crate::function::{Binding, Function};
use crate::return_type;

/// The whole function with the lock around its body.
pub(crate) fn function(
    args: &Args,
    function: &Function,
    bindings: &[Binding],
    async_body: AsyncBody,
) -> TokenStream {
    let written = function.return_type();
    let (attrs, vis, sig) = (&function.attrs, &function.vis, &function.sig);
    let body_attrs = function.body.iter().flat_map(|body| &body.attrs);
    let captured = |binding: &&Binding| async_body.captures(&binding.name, args);
    let captured: Vec<_> = bindings.iter().filter(captured).collect();
    let locked = |output, braces| {
        let output = return_type::erase_impl_trait(output);
        Expansion {
            args,
            bindings,
            captured: &captured,
            output,
            braces,
        }
        .locked_body()
    };
    let body = match async_body {
        AsyncBody::Fn(braces) => locked(written, braces),
        AsyncBody::Block(AsyncBlock {
            asyncness,
            pin,
            params,
            braces,
        }) => {
            let statements = params.statements;
            let output = return_type::future_output(&written)
                .unwrap_or_else(|| return_type::infer(&written));
            let locked = locked(output, braces);
            // Without `move` it would borrow what the key names, and it can return nothing that is borrowed here.
            let block = quote!(#asyncness move { #statements #locked });
            match pin {
                Some(pin) => quote!(#pin(#block)),
                None => block,
            }
        }
    };
    quote! {
        #(#attrs)*
        #vis #sig {
            #(#body_attrs)*
            #body
        }
    }
}

struct Expansion<'a> {
    args: &'a Args,
    bindings: &'a [Binding],
    /// Those that the body's future takes in any case.
    captured: &'a [&'a Binding],
    /// What the body gives, as a variable is declared with it.
    output: Type,
    /// The body.
    braces: Group,
}

impl Expansion<'_> {
    /// Acquire, run the body in the guard's scope and release, make the value.
    fn locked_body(&self) -> TokenStream {
        let import = self.import();
        let enter = self.enter();
        let on_error = self.on_error();
        let not_granted = self.not_granted();
        let lost = self.call_on_error(quote_spanned!(Span::mixed_site()=> __lost));
        let (token, body) = (self.token(), self.body());
        quote_spanned! {Span::mixed_site()=>
            #import
            #enter
            let __on_error = #on_error;
            let __held = match __enter.await {
                __distlock_private::Ok(__held) => __held,
                __distlock_private::Err(__error) => return #not_granted,
            };
            #token
            match __distlock_private::hold(__held, #body).await {
                __distlock_private::Ok((__output, __released)) => {
                    let __failed = __distlock_private::Body(&__output).failed();
                    match __distlock_private::settle(__released, __failed) {
                        __distlock_private::Ok(()) => __output,
                        __distlock_private::Err(__lost) => #lost,
                    }
                }
                __distlock_private::Err(__lost) => #lost,
            }
        }
    }

    /// `let __token = ..`, where the body is to have one.
    fn token(&self) -> Option<TokenStream> {
        self.args.token.as_ref()?;
        Some(quote_spanned!(Span::mixed_site()=> let __token = __held.token();))
    }

    /// The one place that names the crate, by the user's own path where one is given: should there be no
    /// such crate, that is one error.
    fn import(&self) -> TokenStream {
        let krate = match &self.args.krate {
            Some(path) => path.to_token_stream(),
            None => quote_spanned!(Span::mixed_site()=> ::distlock),
        };
        quote_spanned!(Span::mixed_site()=> use #krate::__private as __distlock_private;)
    }

    /// The body as a future, its type pinned to the written one.
    ///
    /// Parameters are mentioned, so that they move in and are dropped before the release: a
    /// transaction passed in must be gone before the lock is. The last one first: captures are dropped in
    /// the order of their mention, and the arguments of an `async fn` in the opposite one of theirs.
    fn body(&self) -> TokenStream {
        let span = mixed_site_at(self.braces.span_open());
        let braces = &self.braces;
        let mentions = self.captured.iter().rev().map(|Binding { name, cfgs }| {
            quote_spanned! {span=>
                #(#cfgs)*
                #[allow(clippy::used_underscore_binding)]
                __distlock_private::mention(&#name);
            }
        });
        let typed_return = self.typed_return();
        let token = self.args.token.as_ref();
        let token = token
            .map(|token| quote_spanned!(span=> let #token: __distlock_private::u64 = __token;));
        // The user's own braces, which rustc would call unnecessary in this place.
        quote_spanned! {span=>
            async move {
                #(#mentions)*
                #typed_return
                #token
                #[allow(unused_braces)]
                #braces
            }
        }
    }

    /// A `return` that is never run and makes the written type the body's, so that mismatches are
    /// reported in the body.
    fn typed_return(&self) -> TokenStream {
        let output = &self.output;
        quote_spanned! {mixed_site_at(output.span())=>
            #[allow(
                unknown_lints,
                unreachable_code,
                clippy::diverging_sub_expression,
                clippy::empty_loop,
                clippy::let_unit_value,
                clippy::let_with_type_underscore,
                clippy::needless_return,
                clippy::unreachable
            )]
            if false {
                let __output: #output = loop {};
                return __output;
            }
        }
    }
}

/// Hygiene of the expansion, at a place of the user's for messages.
fn mixed_site_at(place: Span) -> Span {
    Span::mixed_site().located_at(place)
}
