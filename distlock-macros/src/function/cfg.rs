//! The conditions of a parameter and of its attributes: `#[cfg]`, which may remove the parameter, and `#[cfg_attr]`.
//!
//! rustc evaluates them after the expansion, so each statement that names the parameter needs them too.

use proc_macro2::{TokenStream, TokenTree};
use syn::parse::{ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token, parse_quote};

/// The `#[cfg]` attributes of a parameter, including those inside of `#[cfg_attr]`.
///
/// Its other attributes are left out: they may have no meaning on a statement.
pub(crate) fn conditions(attrs: &[Attribute]) -> Vec<Attribute> {
    replace_each(attrs, |meta| {
        let is_condition = meta.path().is_ident("cfg");
        is_condition.then(|| meta.clone()).into_iter().collect()
    })
}

/// The attributes that `replace` returns for each of these. One inside of `#[cfg_attr]` stays under its condition.
pub(super) fn replace_each(
    attrs: &[Attribute],
    replace: impl Fn(&Meta) -> Vec<Meta>,
) -> Vec<Attribute> {
    let metas = attrs.iter().flat_map(|attr| replaced(&attr.meta, &replace));
    metas.map(|meta| parse_quote!(#[#meta])).collect()
}

fn replaced(meta: &Meta, replace: &impl Fn(&Meta) -> Vec<Meta>) -> Vec<Meta> {
    let conditional = match meta {
        Meta::List(list) if list.path.is_ident("cfg_attr") => cfg_attr.parse2(list.tokens.clone()),
        _ => return replace(meta),
    };
    // rustc itself reports a `cfg_attr` that cannot be parsed.
    let Ok((predicate, attrs)) = conditional else {
        return replace(meta);
    };
    let nested = attrs.iter().flat_map(|meta| replaced(meta, replace));
    nested
        .map(|meta| parse_quote!(cfg_attr(#predicate, #meta)))
        .collect()
}

/// The predicate and the attributes in the parentheses of `cfg_attr(..)`.
fn cfg_attr(input: ParseStream<'_>) -> syn::Result<(TokenStream, Punctuated<Meta, Token![,]>)> {
    let mut predicate = TokenStream::new();
    while !input.peek(Token![,]) {
        predicate.extend([input.parse::<TokenTree>()?]);
    }
    input.parse::<Token![,]>()?;
    Ok((predicate, Punctuated::parse_terminated(input)?))
}

#[cfg(test)]
mod tests {
    use quote::quote;
    use syn::FnArg;

    use super::*;

    #[test]
    fn conditions_are_found_in_cfg_attr_and_other_attributes_are_not() {
        for (written, found) in [
            ("", ""),
            ("#[cfg(unix)]", "#[cfg(unix)]"),
            ("#[allow(unused)] #[doc = \"x\"]", ""),
            ("#[cfg_attr(unix, allow(unused))]", ""),
            (
                "#[cfg_attr(all(unix, test), allow(unused), cfg(test),)]",
                "#[cfg_attr(all(unix, test), cfg(test))]",
            ),
            (
                "#[cfg_attr(unix, cfg_attr(test, cfg(a), cfg(b)))]",
                "#[cfg_attr(unix, cfg_attr(test, cfg(a)))] #[cfg_attr(unix, cfg_attr(test, cfg(b)))]",
            ),
            (
                "#[cfg_attr(true, cfg(unix))]",
                "#[cfg_attr(true, cfg(unix))]",
            ),
            ("#[cfg_attr(unix)]", ""),
        ] {
            let param = syn::parse_str(&format!("{written} x: u8"));
            let Ok(FnArg::Typed(param)) = param else {
                panic!("{written} is not parsed");
            };
            let conditions = conditions(&param.attrs);
            let expected: TokenStream = found.parse().unwrap();
            assert_eq!(
                quote!(#(#conditions)*).to_string(),
                expected.to_string(),
                "{written}"
            );
        }
    }
}
