//! The variables that the parameters of a function introduce.

use proc_macro2::Ident;
use syn::{Attribute, Pat};

/// A variable that the parameters introduce.
pub(crate) struct Binding {
    pub(crate) name: Ident,
    /// Whether its parameter is declared as a reference. It drops nothing, so it does not matter when it is dropped.
    pub(crate) is_reference: bool,
    /// The attributes of its parameter that may remove it.
    pub(crate) cfgs: Vec<Attribute>,
    /// The attributes of its parameter that say what rustc does about an unused variable.
    pub(crate) lints: Vec<Attribute>,
}

impl Binding {
    /// A variable that no `#[cfg]` removes.
    pub(crate) fn unconditional(name: Ident) -> Self {
        Self {
            name,
            is_reference: false,
            cfgs: Vec::new(),
            lints: Vec::new(),
        }
    }
}

/// The variables of a pattern, in order.
pub(crate) fn names(pat: &Pat) -> Vec<Ident> {
    match pat {
        Pat::Ident(pat) => {
            let inner = pat.subpat.iter().flat_map(|(_, pat)| names(pat));
            std::iter::once(pat.ident.clone()).chain(inner).collect()
        }
        Pat::Struct(pat) => pat.fields.iter().flat_map(|f| names(&f.pat)).collect(),
        Pat::Tuple(pat) => pat.elems.iter().flat_map(names).collect(),
        Pat::TupleStruct(pat) => pat.elems.iter().flat_map(names).collect(),
        Pat::Slice(pat) => pat.elems.iter().flat_map(names).collect(),
        // All cases bind the same variables.
        Pat::Or(pat) => pat.cases.iter().take(1).flat_map(names).collect(),
        Pat::Reference(pat) => names(&pat.pat),
        Pat::Paren(pat) => names(&pat.pat),
        // No other irrefutable pattern binds anything.
        _ => Vec::new(),
    }
}
