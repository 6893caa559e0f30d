//! The attributes of a parameter that say what rustc does about an unused variable.
//!
//! The expansion mentions each parameter, so rustc takes it for a used one. It then declares an unused variable in the place
//! of the parameter, which needs these attributes.

use proc_macro2::{Ident, TokenStream};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::{Attribute, FnArg, Meta, Signature, Token, parse_quote};

use super::binding::{Binding, names};

/// What an attribute can say about a lint.
const LEVELS: [&str; 5] = ["allow", "expect", "warn", "deny", "forbid"];

/// The lint, and the group that it belongs to.
const UNUSED: [&str; 2] = ["unused_variables", "unused"];

type Listed = Punctuated<Meta, Token![,]>;

/// The attributes for the variable in the place of a parameter.
pub(crate) fn of_unused(attrs: &[Attribute]) -> Vec<Attribute> {
    let metas = attrs.iter().filter_map(|attr| part(&attr.meta, is_unused));
    metas.map(|meta| parse_quote!(#[#meta])).collect()
}

/// Takes what [`of_unused`] finds out of `#[expect(..)]` of these parameters: rustc would say that the expectation of the
/// parameter, which is used, is not fulfilled.
pub(crate) fn move_expectations(sig: &mut Signature, moved: &[&Binding]) {
    for param in &mut sig.inputs {
        let FnArg::Typed(param) = param else {
            continue;
        };
        let own = names(&param.pat);
        if !moved.iter().any(|binding| own.contains(&binding.name)) {
            continue;
        }
        let attrs = std::mem::take(&mut param.attrs).into_iter();
        param.attrs = attrs.filter_map(without_expectation).collect();
    }
}

fn without_expectation(attr: Attribute) -> Option<Attribute> {
    let is_expectation = attr.path().is_ident("expect") && part(&attr.meta, is_unused).is_some();
    if !is_expectation {
        return Some(attr);
    }
    let others = part(&attr.meta, |lint| !is_unused(lint))?;
    Some(parse_quote!(#[#others]))
}

/// The same attribute with those of its lints that are `wanted`. `None` if it has none of them.
fn part(meta: &Meta, wanted: fn(&Ident) -> bool) -> Option<Meta> {
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

fn is_unused(lint: &Ident) -> bool {
    UNUSED.iter().any(|unused| lint == unused)
}

#[cfg(test)]
mod tests {
    use quote::{ToTokens as _, quote};

    use super::*;

    fn tokens(written: &str) -> String {
        written.parse::<TokenStream>().unwrap().to_string()
    }

    #[test]
    fn lints_of_unused_variables_are_carried_and_expectations_leave_the_parameter() {
        for (written, carried, left) in [
            ("", "", ""),
            ("#[cfg(unix)]", "", "#[cfg(unix)]"),
            (
                "#[allow(unused_variables)]",
                "#[allow(unused_variables)]",
                "#[allow(unused_variables)]",
            ),
            (
                "#[expect(unused, reason = \"x\")]",
                "#[expect(unused, reason = \"x\")]",
                "",
            ),
            (
                "#[expect(clippy::ptr_arg, unused_variables, reason = \"x\")]",
                "#[expect(unused_variables, reason = \"x\")]",
                "#[expect(clippy::ptr_arg, reason = \"x\")]",
            ),
            (
                "#[allow(clippy::ptr_arg)] #[warn(unused)]",
                "#[warn(unused)]",
                "#[allow(clippy::ptr_arg)] #[warn(unused)]",
            ),
        ] {
            let mut sig: Signature = syn::parse_str(&format!("fn f({written} x: u8)")).unwrap();
            let Some(FnArg::Typed(param)) = sig.inputs.first() else {
                panic!("{written} is not parsed");
            };
            let lints = of_unused(&param.attrs);
            assert_eq!(quote!(#(#lints)*).to_string(), tokens(carried), "{written}");
            let x = Binding::unconditional(Ident::new("x", proc_macro2::Span::call_site()));
            move_expectations(&mut sig, &[&x]);
            let expected = tokens(&format!("fn f({left} x: u8)"));
            assert_eq!(sig.to_token_stream().to_string(), expected, "{written}");
        }
    }
}
