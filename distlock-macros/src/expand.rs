//! The tokens that stand in for the body.
//!
//! Of the user's function everything but the body stays as it is. Names of the expansion are spanned
//! `mixed_site`, so neither side sees the other's variables; what it calls is named by absolute path,
//! so the body and its surroundings may shadow anything, `Ok` and `Result` included.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Expr, Type};

use crate::args::{Args, Element, Key, Keys, Time};
use crate::check::{Block, Shape};
use crate::function::{Binding, Function};
use crate::template::{Part, Piece, Template};
use crate::ty;

/// The whole function with the lock around its body.
pub(crate) fn function(args: &Args, function: &Function, shape: Shape) -> TokenStream {
    let written = function.return_type();
    let (attrs, vis, sig) = (&function.attrs, &function.vis, &function.sig);
    let bindings = function.bindings();
    let body_attrs = function.body.iter().flat_map(|body| &body.attrs);
    let locked = |output, braces| {
        let output = ty::erase_impl_trait(output);
        let bindings = &bindings;
        Expansion {
            args,
            bindings,
            output,
            braces,
        }
        .locked()
    };
    let body = match shape {
        Shape::Async(braces) => locked(written, braces),
        Shape::Block(Block {
            asyncness,
            pin,
            braces,
        }) => {
            let output = ty::future_output(&written).unwrap_or_else(|| ty::infer(&written));
            let locked = locked(output, braces);
            match pin {
                Some(pin) => quote!(#pin(#asyncness { #locked })),
                None => quote!(#asyncness { #locked }),
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
    /// What the body gives, as a variable is declared with it.
    output: Type,
    /// The body.
    braces: Group,
}

impl Expansion<'_> {
    /// Acquire, run the body in the guard's scope and release, make the value.
    fn locked(&self) -> TokenStream {
        let private = self.private(Span::mixed_site());
        let keys = self.keys();
        let enter = self.enter();
        let on_error = self.on_error();
        let refused = self.refused();
        let lost = self.call_on_error(quote_spanned!(Span::mixed_site()=> __lost));
        let body = self.body();
        quote_spanned! {Span::mixed_site()=>
            #keys
            let __enter = #enter;
            let __on_error = #on_error;
            let __guard = match __enter.await {
                #private::Ok(__guard) => __guard,
                #private::Err(__error) => return #refused,
            };
            match #private::hold(__guard, #body).await {
                #private::Ok((__output, __released)) => {
                    let __failed = #private::Body(&__output).failed();
                    match #private::settle(__released, __failed) {
                        #private::Ok(()) => __output,
                        #private::Err(__lost) => #lost,
                    }
                }
                #private::Err(__lost) => #lost,
            }
        }
    }

    /// The path to what an expansion may name, by the user's own path to the crate where one is given.
    fn private(&self, span: Span) -> TokenStream {
        match &self.args.krate {
            Some(path) => quote_spanned!(span=> #path::__private),
            None => quote_spanned!(span=> ::distlock::__private),
        }
    }

    /// `let __keys = ..`: all that is to be locked.
    fn keys(&self) -> TokenStream {
        let private = self.private(Span::mixed_site());
        match &self.args.keys {
            Keys::One(key) => {
                let key = self.key(key);
                quote_spanned! {Span::mixed_site()=>
                    #key
                    let __keys = #private::Keys::one(__key);
                }
            }
            Keys::List(elements) => {
                let elements = elements.iter().map(|element| match element {
                    Element::Key(key) => {
                        let key = self.key(key);
                        quote_spanned!(Span::mixed_site()=> #key __keys.add(__key);)
                    }
                    Element::Spread(all) => self.add_all(all),
                });
                quote_spanned! {Span::mixed_site()=>
                    let mut __keys = #private::Keys::several();
                    #(#elements)*
                }
            }
            Keys::Given(all) => {
                let all = self.add_all(all);
                quote_spanned! {Span::mixed_site()=>
                    let mut __keys = #private::Keys::several();
                    #all
                }
            }
        }
    }

    /// Located at the expression, so that one that gives no keys is reported there.
    fn add_all(&self, all: &Expr) -> TokenStream {
        let span = glue_at(all.span());
        let private = self.private(span);
        quote_spanned!(span=> #private::KeyList::add_to(#all, &mut __keys);)
    }

    /// `let __key = ..`: a statement per placeholder, so that nothing one of them borrows (a mutex, say)
    /// is still borrowed when the next is rendered or the lock is waited for.
    fn key(&self, key: &Key) -> TokenStream {
        match key {
            Key::Whole(expr) => {
                let private = self.private(Span::mixed_site());
                quote_spanned!(Span::mixed_site()=> let __key = #private::key(#expr);)
            }
            Key::Template(template) => self.template(template),
        }
    }

    fn template(&self, template: &Template) -> TokenStream {
        // Located at the literal: an error about a placeholder then underlines it and nothing else.
        let span = glue_at(template.literal.span());
        let private = self.private(span);
        let pieces = template.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => quote_spanned!(span=> __key.text(#text);),
            Piece::Part(Part { source, expr }) => {
                let expr = self.at_the_bindings(expr.to_token_stream());
                quote_spanned!(span=> __key.part(#source, &(#expr));)
            }
        });
        quote_spanned! {span=>
            let mut __key = #private::Template::new();
            #(#pieces)*
            let __key = __key.finish();
        }
    }

    /// Gives each name of a parameter that parameter's own hygiene, whoever wrote the literal: a
    /// `macro_rules!` and its caller may each have written one of the two.
    fn at_the_bindings(&self, tokens: TokenStream) -> TokenStream {
        let resolve = |tree| match tree {
            TokenTree::Ident(name) => TokenTree::Ident(self.at_its_binding(name)),
            TokenTree::Group(group) => {
                let inner = self.at_the_bindings(group.stream());
                let mut resolved = Group::new(group.delimiter(), inner);
                resolved.set_span(group.span());
                TokenTree::Group(resolved)
            }
            other => other,
        };
        tokens.into_iter().map(resolve).collect()
    }

    fn at_its_binding(&self, mut name: Ident) -> Ident {
        if let Some(binding) = self.bindings.iter().find(|binding| binding.name == name) {
            name.set_span(name.span().resolved_at(binding.name.span()));
        }
        name
    }

    fn enter(&self) -> TokenStream {
        let private = self.private(Span::mixed_site());
        let client = self.args.client.iter().map(|client| {
            let span = glue_at(client.span());
            quote_spanned!(span=> .client(&(#client)))
        });
        let wait = self.args.wait.iter().map(|wait| {
            let (span, wait) = self.duration(wait);
            quote_spanned!(span=> .wait(#wait))
        });
        let lease = self.args.lease.iter().map(|lease| {
            let (span, lease) = self.duration(lease);
            quote_spanned!(span=> .lease(#lease))
        });
        quote_spanned! {Span::mixed_site()=>
            #private::Enter::new(__keys) #(#client)* #(#wait)* #(#lease)* .enter()
        }
    }

    fn duration(&self, time: &Time) -> (Span, TokenStream) {
        match time {
            Time::Given(expr) => (glue_at(expr.span()), expr.to_token_stream()),
            Time::Fixed(fixed, span) => {
                let span = glue_at(*span);
                let private = self.private(span);
                let (secs, nanos) = (fixed.as_secs(), fixed.subsec_nanos());
                (
                    span,
                    quote_spanned!(span=> #private::Duration::new(#secs, #nanos)),
                )
            }
        }
    }

    /// What makes the value of a lock error. Made once, before the body takes the arguments.
    fn on_error(&self) -> TokenStream {
        let output = &self.output;
        match &self.args.on_error {
            Some(on_error) => self.handler(on_error),
            None => {
                let private = self.private(Span::mixed_site());
                quote_spanned!(Span::mixed_site()=> #private::fail::<#output>)
            }
        }
    }

    /// The value where the lock was not granted.
    fn refused(&self) -> TokenStream {
        let on_error = self.call_on_error(quote_spanned!(Span::mixed_site()=> __error));
        let Some(on_busy) = &self.args.on_busy else {
            return on_error;
        };
        let on_busy = self.handler(on_busy);
        quote_spanned! {Span::mixed_site()=>
            if __error.is_busy() {
                #on_busy(__error)
            } else {
                #on_error
            }
        }
    }

    /// Located at the handler, so that a wrong one is reported once and not at each call.
    fn call_on_error(&self, error: TokenStream) -> TokenStream {
        let place = self
            .args
            .on_error
            .as_ref()
            .map_or_else(|| self.output.span(), |on_error| on_error.span());
        quote_spanned!(glue_at(place)=> __on_error(#error))
    }

    /// A handler, its types tied to the function's.
    fn handler(&self, handler: &Expr) -> TokenStream {
        let span = glue_at(handler.span());
        let private = self.private(span);
        let output = &self.output;
        quote_spanned!(span=> #private::handler::<#output>(#handler))
    }

    /// The body as a future, its type pinned to the written one.
    ///
    /// Every parameter is mentioned, so that it moves in and is dropped before the release: a
    /// transaction passed in must be gone before the lock is.
    fn body(&self) -> TokenStream {
        let span = glue_at(self.braces.span_open());
        let private = self.private(span);
        let braces = &self.braces;
        let mentions = self.bindings.iter().map(|Binding { name, cfgs }| {
            quote_spanned! {span=>
                #(#cfgs)*
                #[allow(clippy::used_underscore_binding)]
                #private::mention(&#name);
            }
        });
        let pin = self.pin();
        // The user's own braces, which rustc would call unnecessary in this place.
        quote_spanned! {span=>
            async move {
                #(#mentions)*
                #pin
                #[allow(unused_braces)]
                #braces
            }
        }
    }

    /// A `return` that is never run and makes the written type the body's, so that mismatches are
    /// reported in the body.
    fn pin(&self) -> TokenStream {
        let output = &self.output;
        quote_spanned! {glue_at(output.span())=>
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
fn glue_at(place: Span) -> Span {
    Span::mixed_site().located_at(place)
}
