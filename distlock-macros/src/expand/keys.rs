//! The statements that compute the keys.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote_spanned};
use syn::Expr;
use syn::spanned::Spanned as _;

use super::{Expansion, mixed_site_at};
use crate::options::keys::{Element, Key, Keys};
use crate::options::template::{Piece, Placeholder, Template};

impl Expansion<'_> {
    /// `let mut __keys = ..`, with a statement for each key.
    ///
    /// The keys, and each template, are named through a reference: its methods come before those that a trait of the user gives to
    /// all types, also if these take `self` or `&self`.
    pub(super) fn keys(&self) -> TokenStream {
        let keys: Vec<_> = match &self.args.keys {
            Keys::Single(key) => vec![self.add(key)],
            Keys::List(elements) => elements
                .iter()
                .map(|element| self.add_element(element))
                .collect(),
            Keys::Expr(all) => vec![self.add_all(all)],
        };
        quote_spanned! {Span::mixed_site()=>
            let mut __keys = __distlock_private::Keys::new();
            let __list = &mut __keys;
            #(#keys)*
        }
    }

    fn add_element(&self, element: &Element) -> TokenStream {
        match element {
            Element::Key(key) => self.add(key),
            Element::Spread(all) => self.add_all(all),
        }
    }

    fn add(&self, key: &Key) -> TokenStream {
        let key = self.key(key);
        quote_spanned!(Span::mixed_site()=> #key __list.add(__key);)
    }

    /// The span is that of the expression, where rustc reports a type that yields no keys.
    fn add_all(&self, all: &Expr) -> TokenStream {
        let span = mixed_site_at(all.span());
        quote_spanned!(span=> __distlock_private::KeyList::add_to(#all, __list);)
    }

    /// `let __key = ..`, with a statement for each placeholder.
    ///
    /// Temporaries of a placeholder, such as a mutex guard, are dropped at the end of its statement: before the next
    /// placeholder is rendered, and before the wait for the lock.
    fn key(&self, key: &Key) -> TokenStream {
        match key {
            Key::Expr(expr) => {
                quote_spanned!(Span::mixed_site()=> let __key = __distlock_private::key(#expr);)
            }
            Key::Template(template) => self.template(template),
        }
    }

    fn template(&self, template: &Template) -> TokenStream {
        // The span of the literal, so that an error about a placeholder underlines the literal only.
        let span = mixed_site_at(template.literal.span());
        let pieces = template.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => quote_spanned!(span=> __pieces.text(#text);),
            Piece::Placeholder(Placeholder { source, expr }) => {
                let literal = template.literal.span();
                let expr = self.resolve_names(expr.to_token_stream(), literal);
                quote_spanned!(span=> __pieces.part(#source, &(#expr));)
            }
        });
        quote_spanned! {span=>
            let mut __key = __distlock_private::Template::new();
            let __pieces = &mut __key;
            #(#pieces)*
            let __key = __key.finish();
        }
    }

    /// Gives each use of a parameter the hygiene of that parameter.
    ///
    /// A `macro_rules!` may have written the template and its caller the parameter, or the other way around. Without this,
    /// the name in the template would not resolve to the parameter.
    fn resolve_names(&self, tokens: TokenStream, literal: Span) -> TokenStream {
        let resolve = |tree| match tree {
            TokenTree::Ident(name) => TokenTree::Ident(self.resolve_name(name, literal)),
            TokenTree::Group(group) => {
                let inner = self.resolve_names(group.stream(), literal);
                let mut resolved = Group::new(group.delimiter(), inner);
                resolved.set_span(group.span());
                TokenTree::Group(resolved)
            }
            other => other,
        };
        tokens.into_iter().map(resolve).collect()
    }

    /// The other tokens of a template have the edition of this crate. Two names have another meaning in earlier editions, which the
    /// literal has.
    fn resolve_name(&self, mut name: Ident, literal: Span) -> Ident {
        if let Some(binding) = self.bindings.iter().find(|binding| binding.name == name) {
            name.set_span(name.span().resolved_at(binding.name.span()));
        } else if name == "gen" {
            // A keyword since 2024.
            name = Ident::new_raw("gen", name.span());
        } else if name == "into_iter" {
            // It borrows a boxed slice before 2024, and an array before 2021.
            name.set_span(literal);
        }
        name
    }
}
