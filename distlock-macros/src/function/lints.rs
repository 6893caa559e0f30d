//! The attributes of a parameter that say what rustc does about an unused variable.
//!
//! The expansion mentions each parameter, so rustc takes it for a used one. It then declares an unused variable in the place
//! of the parameter, which needs these attributes.

use proc_macro2::{Ident, TokenStream};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token, parse_quote};

use super::cfg::replace_each;

/// What an attribute can say about a lint.
const LEVELS: [&str; 5] = ["allow", "expect", "warn", "deny", "forbid"];

/// The lint, and the group that it belongs to.
const UNUSED: [&str; 2] = ["unused_variables", "unused"];

type Listed = Punctuated<Meta, Token![,]>;

/// The attributes for the variable in the place of a parameter.
pub(crate) fn of_unused(attrs: &[Attribute]) -> Vec<Attribute> {
    replace_each(attrs, |meta| part(meta, is_unused).into_iter().collect())
}

/// The same attribute with those of its lints that are `wanted`. `None` if it has none of them.
pub(super) fn part(meta: &Meta, wanted: fn(&Ident) -> bool) -> Option<Meta> {
    let Meta::List(list) = meta else {
        return None;
    };
    let level = list.path.get_ident()?;
    LEVELS.iter().find(|known| level == *known)?;
    let listed = Listed::parse_terminated.parse2(list.tokens.clone()).ok()?;
    let (lints, reason): (Vec<_>, Vec<_>) = listed
        .into_iter()
        .partition(|meta| matches!(meta, Meta::Path(_)));
    let mut lints = lints
        .into_iter()
        .filter(|meta| match meta.path().get_ident() {
            Some(lint) => wanted(lint),
            // A lint of a tool, such as `clippy::ptr_arg`.
            None => wanted(&Ident::new("tool", proc_macro2::Span::call_site())),
        });
    let first = lints.next()?;
    let rest = lints.chain(reason);
    let all: TokenStream = quote::quote!(#first #(, #rest)*);
    Some(parse_quote!(#level(#all)))
}

pub(super) fn is_unused(lint: &Ident) -> bool {
    UNUSED.iter().any(|unused| lint == unused)
}
