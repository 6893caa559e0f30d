//! Generates the new body. The attributes, visibility and signature of the function are not changed.
//!
//! The expansion is hygienic in both directions. Its variables have `mixed_site` spans, so the body does not see them and
//! the expansion does not see those of the body. Its types and functions come from one import, `__distlock_private`, so
//! the body and its surroundings may shadow any name, including `Ok` and `Result`.

mod enter;
mod keys;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Attribute, Type};

use crate::check::{AsyncBlock, AsyncBody};
use crate::function::{Binding, Function, expectations, return_type};
use crate::options::args::{self, Args};

/// The whole function with the lock around its body.
pub(crate) fn function(
    args: &Args,
    function: &Function,
    bindings: &[Binding],
    async_body: AsyncBody,
) -> TokenStream {
    let written = function.return_type();
    let vis = &function.vis;
    // A reference is left to rustc: mentioning it would keep lints from its type.
    let captured =
        |binding: &&Binding| !binding.is_reference && async_body.captures(&binding.name, args);
    let captured: Vec<_> = bindings.iter().filter(captured).collect();
    let unused = unused(args, &captured, async_body.braces());
    let adapted: fn(&[Attribute]) -> Vec<Attribute> =
        if hides_unused(&captured, &unused, async_body.braces()) {
            expectations::of_function
        } else {
            <[Attribute]>::to_vec
        };
    let attrs = adapted(&function.attrs);
    let body_attrs = function.body.iter().flat_map(|body| adapted(&body.attrs));
    let mut sig = function.sig.clone();
    expectations::adapt_expectations(&mut sig, &captured, &unused);
    let locked = |output, braces| {
        let is_opaque = return_type::is_impl_trait(&output);
        let output = return_type::erase_impl_trait(output);
        Expansion {
            args,
            bindings,
            captured: &captured,
            unused: &unused,
            output,
            is_opaque,
            braces,
        }
        .locked_body()
    };
    let body = match async_body {
        AsyncBody::Fn(braces) => locked(written, braces),
        AsyncBody::Block(mut block) => {
            for statement in &mut block.params.statements {
                let attrs = &mut statement.attrs;
                expectations::adapt_pattern(&mut statement.pat, attrs, &captured, &unused);
            }
            let output = return_type::future_output(&written)
                .unwrap_or_else(|| return_type::infer(&written));
            async_block(block, |braces| locked(output, braces))
        }
    };
    let mut braces = Group::new(Delimiter::Brace, quote!(#(#body_attrs)* #body));
    // Those of the user: lints do not look at a function that ends in generated braces.
    if let Some(written) = &function.body {
        braces.set_span(written.braces.span());
    }
    quote!(#(#attrs)* #vis #sig #braces)
}

/// The block of a function that returns a future, with the lock around its body.
fn async_block(block: AsyncBlock, locked: impl FnOnce(Group) -> TokenStream) -> TokenStream {
    let AsyncBlock {
        asyncness,
        pin,
        params,
        braces,
    } = block;
    let statements = params.statements;
    let span = braces.span();
    let locked = locked(braces);
    // The block has the spans of the user's, where rustc reports the lifetimes of its captures.
    let mut block = Group::new(Delimiter::Brace, quote!(#(#statements)* #locked));
    block.set_span(span);
    // `move` even if the user wrote none: the key uses variables of the function, and a future that borrows them could not
    // be returned.
    let block = quote_spanned!(asyncness.span()=> #asyncness move #block);
    match pin {
        Some(pin) => pin.call(block),
        None => block,
    }
}

/// The captured parameters that neither the body nor an option names.
fn unused<'a>(args: &Args, captured: &[&'a Binding], braces: &Group) -> Vec<&'a Binding> {
    let is_named =
        |name: &Ident| args.mentions(name) || args::contains_variable(braces.stream(), name);
    let not_named = |binding: &&&Binding| {
        let name = &binding.name;
        // rustc itself reports no unused variable whose name begins so.
        name != "self" && !name.to_string().starts_with('_') && !is_named(name)
    };
    captured.iter().filter(not_named).copied().collect()
}

/// Whether a `#[cfg]` in the body may remove a name after the expansion, which has used the parameter of this name.
fn hides_unused(captured: &[&Binding], unused: &[&Binding], braces: &Group) -> bool {
    captured.len() > unused.len()
        && args::contains_variable(braces.stream(), &Ident::new("cfg", Span::call_site()))
}

struct Expansion<'a> {
    args: &'a Args,
    bindings: &'a [Binding],
    /// The variables that the future of the body captures even if the body does not use them.
    captured: &'a [&'a Binding],
    /// Those that nothing of the user names.
    unused: &'a [&'a Binding],
    /// The output of the body, as a type that a variable can be declared with.
    output: Type,
    /// Whether the declared output is `impl Trait`.
    is_opaque: bool,
    /// The body of the user, in braces.
    braces: Group,
}

impl Expansion<'_> {
    /// Acquires the lock, runs the body in the scope of the guard, releases, and makes the return value.
    ///
    /// The value of the function is that of an `.await`. If it came from another expression, rustc would report the
    /// lifetimes of the body there, and not at the `return` or the last expression of the user.
    fn locked_body(&self) -> TokenStream {
        let import = self.import();
        let enter = self.enter();
        let on_error = self.on_error();
        let not_granted = self.not_granted();
        let on_lost = self.on_lost();
        let (hold, lost) = match &on_lost {
            Some(_) => (
                "hold_value",
                Some(quote_spanned!(Span::mixed_site()=> , __on_lost)),
            ),
            None => ("hold", None),
        };
        let hold = Ident::new(hold, Span::mixed_site());
        let token = self.token();
        let body = self.body();
        quote_spanned! {Span::mixed_site()=>
            #import
            #enter
            let __on_error = #on_error;
            #on_lost
            let __held = match __enter.await {
                __distlock_private::Ok(__held) => __held,
                __distlock_private::Err(__error) => return #not_granted,
            };
            #token
            __distlock_private::#hold(
                __held,
                #body,
                |__output| __distlock_private::Body(__output).failed(),
                __on_error
                #lost
            )
            .await
        }
    }

    /// `let __token = ..`, if the option `token` is set.
    fn token(&self) -> Option<TokenStream> {
        self.args.token.as_ref()?;
        Some(
            quote_spanned!(Span::mixed_site()=> let __token = __distlock_private::Held::token(&__held);),
        )
    }

    /// The import of everything that the expansion calls.
    ///
    /// No other place names the crate, so a wrong `crate = ..` is one error.
    fn import(&self) -> TokenStream {
        let krate = match &self.args.krate {
            Some(path) => path.to_token_stream(),
            None => quote_spanned!(Span::mixed_site()=> ::distlock),
        };
        quote_spanned!(Span::mixed_site()=> use #krate::__private as __distlock_private;)
    }

    /// The body as a future whose output is the declared return type.
    ///
    /// Every captured parameter is mentioned, so that it moves into the future and is dropped before the release: a
    /// transaction that was passed in must end before the lock does. The last parameter is mentioned first, because
    /// captures are dropped in the order of their first mention, and an `async fn` drops its arguments in reverse order.
    fn body(&self) -> TokenStream {
        let span = mixed_site_at(self.braces.span_open());
        let braces = &self.braces;
        let mentions = self
            .captured
            .iter()
            .rev()
            .map(|Binding { name, cfgs, .. }| {
                if name.to_string().starts_with('_') {
                    quote_spanned!(span=> #(#cfgs)* *__distlock_private::place_of(&#name) = ();)
                } else {
                    quote_spanned!(span=> #(#cfgs)* __distlock_private::mention(&#name);)
                }
            });
        let unused = self.unused_params(span);
        let typed_return = self.typed_return();
        let token = self.args.token.as_ref();
        let token = token
            .map(|token| quote_spanned!(span=> let #token: __distlock_private::u64 = __token;));
        // Behind the `=>` rustc does not call the braces of the user unnecessary.
        let content = quote_spanned! {span=>
            #(#mentions)*
            #unused
            #typed_return
            #token
            match () {
                () => #braces
            }
        };
        // The block itself has the spans of the user's braces, because rustc does not name the variables of a block that
        // a macro wrote.
        let mut block = Group::new(Delimiter::Brace, content);
        block.set_span(braces.span());
        quote_spanned!(braces.span_open()=> async move #block)
    }

    /// An unused variable for each parameter that neither the body nor an option names. The mention makes the parameter
    /// itself a used one, so rustc would not report it, such as one whose placeholder was forgotten.
    fn unused_params(&self, span: Span) -> TokenStream {
        let unused = self.unused.iter().map(|binding| {
            let Binding {
                name, cfgs, lints, ..
            } = binding;
            quote_spanned!(span=> #(#cfgs)* { #(#lints)* let #name = &#name; })
        });
        quote_spanned!(span=> #(#unused)*)
    }

    /// A `return` that never runs. It gives the async block the declared type, so that rustc reports a mismatch inside
    /// the body, and applies coercions there.
    ///
    /// `if let` keeps the body reachable, and no lint is about it: a user who forbids a lint could not compile an `allow`.
    fn typed_return(&self) -> TokenStream {
        let output = &self.output;
        quote_spanned! {mixed_site_at(output.span())=>
            if let __distlock_private::Some(__output) = __distlock_private::none::<#output>() {
                return __output;
            }
        }
    }
}

/// A span with the hygiene of the expansion, at a place in the code of the user, where rustc shows its messages.
fn mixed_site_at(place: Span) -> Span {
    Span::mixed_site().located_at(place)
}
