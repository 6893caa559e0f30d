//! The attributes of a parameter that say what rustc does about an unused variable.
//!
//! The expansion mentions each parameter, so rustc takes it for a used one. It then declares an unused variable in the place
//! of the parameter, which needs these attributes.

use proc_macro2::{Ident, TokenStream};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::{Attribute, FnArg, Meta, Signature, Token, parse_quote};

use super::binding::{Binding, names};
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

/// Takes the lints of [`of_unused`] out of `#[expect(..)]` of the parameters that the expansion mentions. Such a parameter is
/// used, so rustc would report an expectation that is not fulfilled.
///
/// The variable in the place of an unused parameter has the expectation. A parameter that the body names has no such variable,
/// and gets an `#[allow(..)]`: a `#[cfg]` in the body may remove the name after the expansion.
pub(crate) fn adapt_expectations(sig: &mut Signature, mentioned: &[&Binding], unused: &[&Binding]) {
    for param in &mut sig.inputs {
        let FnArg::Typed(param) = param else {
            continue;
        };
        let own = names(&param.pat);
        let is_among =
            |bindings: &[&Binding]| bindings.iter().any(|binding| own.contains(&binding.name));
        if is_among(mentioned) {
            let is_moved = is_among(unused);
            param.attrs = replace_each(&param.attrs, |meta| without_expectation(meta, is_moved));
        }
    }
}

fn without_expectation(meta: &Meta, is_moved: bool) -> Vec<Meta> {
    let expected = part(meta, is_unused).filter(|_| meta.path().is_ident("expect"));
    let Some(expected) = expected else {
        return vec![meta.clone()];
    };
    let allowed = match expected {
        Meta::List(mut list) if !is_moved => {
            list.path = parse_quote!(allow);
            Some(Meta::List(list))
        }
        _ => None,
    };
    let others = part(meta, |lint| !is_unused(lint));
    allowed.into_iter().chain(others).collect()
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
        for (written, carried, left, named) in [
            ("", "", "", ""),
            ("#[cfg(unix)]", "", "#[cfg(unix)]", "#[cfg(unix)]"),
            (
                "#[allow(unused_variables)]",
                "#[allow(unused_variables)]",
                "#[allow(unused_variables)]",
                "#[allow(unused_variables)]",
            ),
            (
                "#[expect(unused, reason = \"x\")]",
                "#[expect(unused, reason = \"x\")]",
                "",
                "#[allow(unused, reason = \"x\")]",
            ),
            (
                "#[expect(clippy::ptr_arg, unused_variables, reason = \"x\")]",
                "#[expect(unused_variables, reason = \"x\")]",
                "#[expect(clippy::ptr_arg, reason = \"x\")]",
                "#[allow(unused_variables, reason = \"x\")] #[expect(clippy::ptr_arg, reason = \"x\")]",
            ),
            (
                "#[allow(clippy::ptr_arg)] #[warn(unused)]",
                "#[warn(unused)]",
                "#[allow(clippy::ptr_arg)] #[warn(unused)]",
                "#[allow(clippy::ptr_arg)] #[warn(unused)]",
            ),
            (
                "#[cfg_attr(unix, expect(unused), cfg(test))]",
                "#[cfg_attr(unix, expect(unused))]",
                "#[cfg_attr(unix, cfg(test))]",
                "#[cfg_attr(unix, allow(unused))] #[cfg_attr(unix, cfg(test))]",
            ),
            (
                "#[cfg_attr(unix)]",
                "",
                "#[cfg_attr(unix)]",
                "#[cfg_attr(unix)]",
            ),
        ] {
            let sig: Signature = syn::parse_str(&format!("fn f({written} x: u8)")).unwrap();
            let Some(FnArg::Typed(param)) = sig.inputs.first() else {
                panic!("{written} is not parsed");
            };
            let lints = of_unused(&param.attrs);
            assert_eq!(quote!(#(#lints)*).to_string(), tokens(carried), "{written}");
            let x = Binding::unconditional(Ident::new("x", proc_macro2::Span::call_site()));
            for (mentioned, unused, attrs) in [
                (vec![&x], vec![&x], left),
                (vec![&x], vec![], named),
                (vec![], vec![], written),
            ] {
                let mut sig = sig.clone();
                adapt_expectations(&mut sig, &mentioned, &unused);
                let expected = tokens(&format!("fn f({attrs} x: u8)"));
                assert_eq!(sig.to_token_stream().to_string(), expected, "{written}");
            }
        }
    }
}
