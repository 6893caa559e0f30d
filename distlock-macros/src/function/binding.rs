//! The variables that the parameters of a function introduce.

use proc_macro2::Ident;
use syn::{Attribute, FieldPat, Pat};

use super::{cfg, lints};

/// A variable that the parameters introduce.
pub(crate) struct Binding {
    pub(crate) name: Ident,
    /// Whether its parameter is declared as a reference. It drops nothing, so it does not matter when it is dropped.
    pub(crate) is_reference: bool,
    /// The attributes of its parameter, and of the fields of a pattern around it, that may remove it.
    pub(crate) cfgs: Vec<Attribute>,
    /// The attributes in the same places that say what rustc does about an unused variable.
    pub(crate) lints: Vec<Attribute>,
}

impl Binding {
    /// A variable with the attributes of its parameter.
    pub(crate) fn new(name: Ident, attrs: &[Attribute]) -> Self {
        Self {
            name,
            is_reference: false,
            cfgs: cfg::conditions(attrs),
            lints: lints::of_unused(attrs),
        }
    }

    /// The variables of a pattern with the attributes of its parameter, in order.
    pub(crate) fn of_pattern(pat: &Pat, attrs: &[Attribute]) -> Vec<Self> {
        let of_pattern = |pat| Self::of_pattern(pat, attrs);
        match pat {
            Pat::Ident(pat) => {
                let inner = pat.subpat.iter().flat_map(|(_, pat)| of_pattern(pat));
                let variable = Self::new(pat.ident.clone(), attrs);
                std::iter::once(variable).chain(inner).collect()
            }
            Pat::Struct(pat) => {
                let of_field = |field: &FieldPat| {
                    Self::of_pattern(&field.pat, &[attrs, &field.attrs].concat())
                };
                pat.fields.iter().flat_map(of_field).collect()
            }
            Pat::Tuple(pat) => pat.elems.iter().flat_map(of_pattern).collect(),
            Pat::TupleStruct(pat) => pat.elems.iter().flat_map(of_pattern).collect(),
            Pat::Slice(pat) => pat.elems.iter().flat_map(of_pattern).collect(),
            // All cases bind the same variables.
            Pat::Or(pat) => pat.cases.iter().take(1).flat_map(of_pattern).collect(),
            Pat::Reference(pat) => of_pattern(&pat.pat),
            Pat::Paren(pat) => of_pattern(&pat.pat),
            // No other irrefutable pattern binds anything.
            _ => Vec::new(),
        }
    }
}

/// The fields in a pattern, without those inside of other fields.
pub(crate) fn fields_mut(pat: &mut Pat) -> Vec<&mut FieldPat> {
    match pat {
        Pat::Struct(pat) => pat.fields.iter_mut().collect(),
        Pat::Ident(pat) => {
            let inner = pat.subpat.iter_mut();
            inner.flat_map(|(_, pat)| fields_mut(pat)).collect()
        }
        Pat::Tuple(pat) => pat.elems.iter_mut().flat_map(fields_mut).collect(),
        Pat::TupleStruct(pat) => pat.elems.iter_mut().flat_map(fields_mut).collect(),
        Pat::Slice(pat) => pat.elems.iter_mut().flat_map(fields_mut).collect(),
        Pat::Or(pat) => pat.cases.iter_mut().flat_map(fields_mut).collect(),
        Pat::Reference(pat) => fields_mut(&mut pat.pat),
        Pat::Paren(pat) => fields_mut(&mut pat.pat),
        _ => Vec::new(),
    }
}
