//! The annotated function: its signature is parsed, its body is kept as tokens.
//!
//! The body is never parsed, so that a half-written body reaches the compiler and the editor unchanged.

pub(crate) mod async_trait_params;
mod binding;
mod cfg;
pub(crate) mod expectations;
mod lints;
pub(crate) mod return_type;

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::{Attribute, FnArg, ReturnType, Signature, Token, Type, Visibility, parse_quote_spanned};

pub(crate) use self::binding::Binding;

/// A function, a method or a method of a trait.
pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    /// `None` for a required method of a trait.
    pub(crate) body: Option<Body>,
}

/// `{ .. }`.
pub(crate) struct Body {
    /// The inner attributes `#![..]`, which must stay first in the function.
    pub(crate) attrs: Vec<Attribute>,
    /// The rest. The braces keep their spans, because rustc points at them when the body lacks a value.
    pub(crate) braces: Group,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let sig = input.parse()?;
        let required = input.parse::<Option<Token![;]>>()?.is_some();
        let body = if required { None } else { Some(input.parse()?) };
        Ok(Self {
            attrs,
            vis,
            sig,
            body,
        })
    }
}

impl Parse for Body {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let written = braces(input.parse()?)?;
        let split = |input: ParseStream<'_>| {
            let attrs = input.call(Attribute::parse_inner)?;
            Ok((attrs, input.parse::<TokenStream>()?))
        };
        let (attrs, rest) = split.parse2(written.stream())?;
        // The group that was written: a new one would not have the spans of its two braces.
        if attrs.is_empty() {
            let braces = written;
            return Ok(Self { attrs, braces });
        }
        let mut braces = Group::new(Delimiter::Brace, rest);
        braces.set_span(written.span());
        Ok(Self { attrs, braces })
    }
}

/// The braces of a body. A body that `macro_rules!` captured as `block` is inside a group without delimiters.
fn braces(tree: TokenTree) -> syn::Result<Group> {
    match tree {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Ok(group),
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
            braces(syn::parse2(group.stream())?)
        }
        other => Err(syn::Error::new(other.span(), "expected a body in braces")),
    }
}

impl Function {
    /// Every variable of the signature, in order; `self` is first.
    pub(crate) fn bindings(&self) -> Vec<Binding> {
        let of_parameter = |param: &FnArg| match param {
            FnArg::Receiver(this) => {
                let this_name = Ident::new("self", this.self_token.span);
                vec![Binding::new(this_name, &this.attrs)]
            }
            FnArg::Typed(param) => {
                let is_reference = matches!(*param.ty, Type::Reference(_));
                let bindings = Binding::of_pattern(&param.pat, &param.attrs).into_iter();
                bindings
                    .map(|binding| Binding {
                        is_reference,
                        ..binding
                    })
                    .collect()
            }
        };
        self.sig.inputs.iter().flat_map(of_parameter).collect()
    }

    /// The declared return type. If there is none, it is `()` with the span of the name, where errors about it are shown.
    pub(crate) fn return_type(&self) -> Type {
        match &self.sig.output {
            ReturnType::Type(_, ty) => (**ty).clone(),
            ReturnType::Default => parse_quote_spanned!(self.sig.ident.span()=> ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bindings(function: &str) -> String {
        let function: Function = syn::parse_str(function).unwrap();
        let names: Vec<_> = function
            .bindings()
            .iter()
            .map(|b| b.name.to_string())
            .collect();
        names.join(" ")
    }

    #[test]
    fn every_variable_of_the_signature_is_found() {
        for (params, names) in [
            ("", ""),
            ("&self, id: u64", "self id"),
            ("mut self: Box<Self>, mut n: u8", "self n"),
            ("(a, [b, .., c]): (u8, [u8; 9])", "a b c"),
            ("Json(Order { id, lines: ref l, .. }): Json<Order>", "id l"),
            ("all @ (x, _): (u8, u8), &y: &u8, _: u8", "all x y"),
        ] {
            let function = format!("async fn f({params}) {{ }}");
            assert_eq!(bindings(&function), names, "{params}");
        }
    }

    #[test]
    fn body_is_not_parsed() {
        let function: Function = syn::parse_str("async fn f() { let x = ; order. }").unwrap();
        assert!(function.body.is_some());
    }
}
