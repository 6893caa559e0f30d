//! The acquisition, and the handlers of its errors.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens as _, quote_spanned};
use syn::Expr;
use syn::spanned::Spanned as _;

use super::{Expansion, mixed_site_at};
use crate::options::duration::DurationValue;
use crate::options::keyword::OnUnavailable;
use crate::options::mode::Mode;

impl Expansion<'_> {
    /// `let __enter = ..`: the future that acquires the lock. With a condition that is false it acquires nothing.
    pub(super) fn enter(&self) -> TokenStream {
        let keys = self.keys();
        let settings = self.settings();
        let enter = quote_spanned! {Span::mixed_site()=>
            __distlock_private::Enter::new(__keys) #(#settings)* .enter()
        };
        let Some(condition) = &self.args.condition else {
            return quote_spanned!(Span::mixed_site()=> #keys let __enter = #enter;);
        };
        let condition = self.condition(condition);
        quote_spanned! {Span::mixed_site()=>
            #condition
            let __enter = if __condition {
                #keys
                #enter
            } else {
                __distlock_private::Entering::without_lock()
            };
        }
    }

    /// `let __condition: bool = ..`. The declared type makes rustc report any other type at the expression, once.
    fn condition(&self, condition: &Expr) -> TokenStream {
        let span = mixed_site_at(condition.span());
        quote_spanned!(span=> let __condition: __distlock_private::bool = #condition;)
    }

    /// A method call for each option that is set.
    fn settings(&self) -> Vec<TokenStream> {
        let args = self.args;
        let client = args.client.as_ref().map(|client| {
            let span = mixed_site_at(client.span());
            // In parentheses, since `&` binds more tightly than most of what an expression may have.
            quote_spanned!(span=> .client(&(#client)))
        });
        let mode = (args.mode != Mode::default()).then(|| {
            let mode = Ident::new(args.mode.variant(), Span::mixed_site());
            quote_spanned!(Span::mixed_site()=> .mode(__distlock_private::Mode::#mode))
        });
        let wait = args.wait.as_ref().map(|wait| {
            let (span, wait) = self.duration(wait);
            quote_spanned!(span=> .wait(#wait))
        });
        let lease = args.lease.as_ref().map(|lease| {
            let (span, lease) = self.duration(lease);
            quote_spanned!(span=> .lease(#lease))
        });
        let max_hold = args.max_hold.as_ref().map(|most| {
            let (span, most) = self.duration(most);
            quote_spanned!(span=> .max_hold(#most))
        });
        let max_waiters = args.max_waiters.as_ref().map(|most| {
            let span = mixed_site_at(most.span());
            quote_spanned!(span=> .max_waiters(#most))
        });
        let least = args.hold_at_least.as_ref().map(|least| {
            let (span, least) = self.duration(least);
            quote_spanned!(span=> .hold_at_least(#least))
        });
        let run = (args.on_unavailable == OnUnavailable::Run)
            .then(|| quote_spanned!(Span::mixed_site()=> .or_run_without_lock()));
        let settings = [mode, client, wait, lease, max_hold, max_waiters, least, run];
        settings.into_iter().flatten().collect()
    }

    fn duration(&self, value: &DurationValue) -> (Span, TokenStream) {
        match value {
            DurationValue::Expr(expr) => (mixed_site_at(expr.span()), expr.to_token_stream()),
            DurationValue::Literal(duration, span) => {
                let span = mixed_site_at(*span);
                let secs = duration.as_secs();
                let nanos = duration.subsec_nanos();
                (
                    span,
                    quote_spanned!(span=> __distlock_private::Duration::new(#secs, #nanos)),
                )
            }
        }
    }

    /// The handler that turns a lock error into the return value. It is evaluated before the body takes the arguments.
    pub(super) fn on_error(&self) -> TokenStream {
        let output = &self.output;
        let Some(on_error) = &self.args.on_error else {
            return quote_spanned!(Span::mixed_site()=> __distlock_private::fail::<#output>());
        };
        self.handler(on_error)
    }

    /// `let __on_lost = ..`: the handler of a value whose lock was lost, if the option is set.
    pub(super) fn on_lost(&self) -> Option<TokenStream> {
        let on_lost = self.args.on_lost.as_ref()?;
        let span = mixed_site_at(on_lost.span());
        let output = &self.output;
        // Only rustc knows what is behind `impl Trait`, so the handler gets all of it, also if it is a `Result`.
        let returned = if self.is_opaque { "plain" } else { "returned" };
        let returned = Ident::new(returned, span);
        Some(quote_spanned! {span=>
            let __on_lost = __distlock_private::#returned::<#output>().on_lost(#on_lost);
        })
    }

    /// The return value if the lock was not granted.
    pub(super) fn not_granted(&self) -> TokenStream {
        let on_error = self.call_on_error();
        let Some(on_busy) = &self.args.on_busy else {
            return on_error;
        };
        let on_busy = self.handler(on_busy);
        quote_spanned! {Span::mixed_site()=>
            {
                let __refused = &__error;
                if __refused.is_held_by_another() {
                    #on_busy.make(__error)
                } else {
                    #on_error
                }
            }
        }
    }

    /// The call of the handler. It has the span of the handler, so that rustc reports a wrong handler once.
    fn call_on_error(&self) -> TokenStream {
        let place = self
            .args
            .on_error
            .as_ref()
            .map_or_else(|| self.output.span(), |on_error| on_error.span());
        quote_spanned!(mixed_site_at(place)=> __on_error.make(__error))
    }

    /// A handler whose argument and output have the types that the function needs.
    fn handler(&self, handler: &Expr) -> TokenStream {
        let span = mixed_site_at(handler.span());
        let output = &self.output;
        quote_spanned!(span=> __distlock_private::handler::<#output, _>(#handler))
    }
}
