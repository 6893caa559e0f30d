//! `#[expect(unused_variables)]` of functions and of parameters, and of fields in their patterns, that the expansion mentions.

use std::slice;

use syn::{Attribute, FnArg, Meta, Pat, Signature, parse_quote};

use super::binding::{Binding, fields_mut};
use super::cfg::replace_each;
use super::lints::{is_unused, part};

/// Takes the lints of [`of_unused`](super::lints::of_unused) out of `#[expect(..)]` of the parameters that the expansion mentions. Such a parameter is
/// used, so rustc would report an expectation that is not fulfilled.
///
/// The variable in the place of an unused parameter has the expectation. A parameter that the body names has no such variable,
/// and gets an `#[allow(..)]`: a `#[cfg]` in the body may remove the name after the expansion.
pub(crate) fn adapt_expectations(sig: &mut Signature, mentioned: &[&Binding], unused: &[&Binding]) {
    for param in &mut sig.inputs {
        if let FnArg::Typed(param) = param {
            adapt_pattern(&mut param.pat, &mut param.attrs, mentioned, unused);
        }
    }
}

/// Does the same with a pattern: with its attributes, and with those of the fields in it.
pub(crate) fn adapt_pattern(
    pat: &mut Pat,
    attrs: &mut Vec<Attribute>,
    mentioned: &[&Binding],
    unused: &[&Binding],
) {
    let own = Binding::of_pattern(pat, &[]);
    let is_among = |bindings: &[&Binding]| {
        let mut bindings = bindings.iter();
        bindings.any(|binding| own.iter().any(|own| own.name == binding.name))
    };
    if is_among(mentioned) {
        let is_moved = is_among(unused);
        *attrs = replace_each(attrs, |meta| without_expectation(meta, is_moved));
    }
    for field in fields_mut(pat) {
        adapt_pattern(&mut field.pat, &mut field.attrs, mentioned, unused);
    }
}

/// The attributes of a function in which a `#[cfg]` may remove the name of a parameter after the expansion. An expectation that there
/// are unused variables becomes an `#[allow(..)]`: the expansion has used that parameter.
pub(crate) fn of_function(attrs: &[Attribute]) -> Vec<Attribute> {
    let adapt = |attr: &Attribute| {
        let path = attr.path();
        if !path.is_ident("expect") && !path.is_ident("cfg_attr") {
            return vec![attr.clone()];
        }
        let adapted = replace_each(slice::from_ref(attr), |meta| {
            without_expectation(meta, false)
        });
        let style = attr.style;
        let adapted = adapted.into_iter();
        adapted.map(|attr| Attribute { style, ..attr }).collect()
    };
    attrs.iter().flat_map(adapt).collect()
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

#[cfg(test)]
mod tests {
    use proc_macro2::{Ident, Span, TokenStream};
    use quote::{ToTokens as _, quote};

    use super::super::lints::of_unused;
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
            let x = Binding::new(Ident::new("x", Span::call_site()), &[]);
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
    #[test]
    fn attributes_of_fields_belong_to_the_variables_in_them() {
        let sig = "fn f(#[cfg(a)] (P { #[cfg(b)] x, #[expect(unused)] y: Q { #[allow(unused)] z, w } }, u): T)";
        let mut sig: Signature = syn::parse_str(sig).unwrap();
        let Some(FnArg::Typed(param)) = sig.inputs.first() else {
            panic!("a parameter is parsed");
        };
        let bindings = Binding::of_pattern(&param.pat, &param.attrs);
        let shown =
            |Binding {
                 name, cfgs, lints, ..
             }: &Binding| quote!(#(#cfgs)* #(#lints)* #name).to_string();
        let shown: Vec<_> = bindings.iter().map(shown).collect();
        assert_eq!(
            shown.join("; "),
            tokens(
                "#[cfg(a)] #[cfg(b)] x; #[cfg(a)] #[expect(unused)] #[allow(unused)] z; #[cfg(a)] #[expect(unused)] w; #[cfg(a)] u"
            )
            .replace(" ;", ";")
        );
        let all: Vec<_> = bindings.iter().collect();
        adapt_expectations(&mut sig, &all, &all);
        let adapted = "fn f(#[cfg(a)] (P { #[cfg(b)] x, y: Q { #[allow(unused)] z, w } }, u): T)";
        assert_eq!(sig.to_token_stream().to_string(), tokens(adapted));
    }
}
