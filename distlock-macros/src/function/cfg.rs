//! The conditions that may remove a parameter.
//!
//! rustc evaluates those of a parameter after the expansion, so each statement that names the parameter needs them too.

use proc_macro2::{TokenStream, TokenTree};
use syn::parse::{ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token, parse_quote};

/// The `#[cfg]` attributes of a parameter, including those inside of `#[cfg_attr]`.
///
/// Its other attributes are left out: they may have no meaning on a statement.
pub(crate) fn conditions(attrs: &[Attribute]) -> Vec<Attribute> {
    attrs
        .iter()
        .flat_map(|attr| metas(&attr.meta))
        .map(|meta| parse_quote!(#[#meta]))
        .collect()
}

fn metas(meta: &Meta) -> Vec<Meta> {
    match meta {
        meta if meta.path().is_ident("cfg") => vec![meta.clone()],
        Meta::List(list) if list.path.is_ident("cfg_attr") => {
            // rustc itself reports a `cfg_attr` that cannot be parsed.
            let (predicate, attrs) = cfg_attr.parse2(list.tokens.clone()).unwrap_or_default();
            let nested = attrs.iter().flat_map(metas);
            nested
                .map(|meta| parse_quote!(cfg_attr(#predicate, #meta)))
                .collect()
        }
        _ => Vec::new(),
    }
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
