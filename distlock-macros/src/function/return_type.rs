//! Two types that are derived from a declared return type: the type that a variable can be declared with, and the output
//! of the future that the return type names.

use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{GenericArgument, Path, PathArguments, Token, Type, TypeInfer, TypeParamBound};

/// The type with every `impl Trait` replaced by `_`, because a variable cannot be declared with `impl Trait`.
pub(crate) fn erase_impl_trait(mut ty: Type) -> Type {
    erase(&mut ty);
    ty
}

fn erase(ty: &mut Type) {
    match ty {
        Type::ImplTrait(_) => *ty = infer(ty),
        Type::Path(path) => erase_arguments(&mut path.path),
        Type::TraitObject(object) => erase_bounds(&mut object.bounds),
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(erase),
        Type::Reference(reference) => erase(&mut reference.elem),
        Type::Array(array) => erase(&mut array.elem),
        Type::Slice(slice) => erase(&mut slice.elem),
        Type::Paren(paren) => erase(&mut paren.elem),
        Type::Group(group) => erase(&mut group.elem),
        _ => {}
    }
}

fn erase_bounds(bounds: &mut Punctuated<TypeParamBound, Token![+]>) {
    for bound in bounds {
        if let TypeParamBound::Trait(bound) = bound {
            erase_arguments(&mut bound.path);
        }
    }
}

fn erase_arguments(path: &mut Path) {
    for segment in &mut path.segments {
        if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
            for argument in &mut arguments.args {
                match argument {
                    GenericArgument::Type(ty) => erase(ty),
                    GenericArgument::AssocType(assoc) => erase(&mut assoc.ty),
                    _ => {}
                }
            }
        }
    }
}

/// Whether a type is `impl Trait` itself, and not only a part of it.
pub(crate) fn is_impl_trait(ty: &Type) -> bool {
    match ty {
        Type::ImplTrait(_) => true,
        Type::Paren(paren) => is_impl_trait(&paren.elem),
        Type::Group(group) => is_impl_trait(&group.elem),
        _ => false,
    }
}

/// `_` with the span of a type.
pub(crate) fn infer(ty: &Type) -> Type {
    let attrs = Vec::new();
    let underscore_token = Token![_](ty.span());
    Type::Infer(TypeInfer {
        attrs,
        underscore_token,
    })
}

/// `T` of `Pin<Box<dyn Future<Output = T>>>` and of `impl Future<Output = T>`; `None` if the type does not name it.
pub(crate) fn future_output(ty: &Type) -> Option<Type> {
    match ty {
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            // The argument of any other type may be the output of a future, and have a future in it.
            let is_around_a_future = last.ident == "Pin" || last.ident == "Box";
            match &last.arguments {
                PathArguments::AngleBracketed(arguments) if is_around_a_future => {
                    arguments.args.iter().find_map(|argument| match argument {
                        GenericArgument::Type(ty) => future_output(ty),
                        _ => None,
                    })
                }
                _ => None,
            }
        }
        Type::TraitObject(object) => object.bounds.iter().find_map(output_of_bound),
        Type::ImplTrait(opaque) => opaque.bounds.iter().find_map(output_of_bound),
        Type::Paren(paren) => future_output(&paren.elem),
        Type::Group(group) => future_output(&group.elem),
        _ => None,
    }
}

/// Whether a type is a future. An alias is one by its name, such as `BoxFuture<'a, T>`.
pub(crate) fn is_future(ty: &Type) -> bool {
    let is_named_so = match ty {
        Type::Path(path) => {
            let last = path.path.segments.last();
            last.is_some_and(|last| last.ident.to_string().ends_with("Future"))
        }
        _ => false,
    };
    is_named_so || future_output(ty).is_some()
}

fn output_of_bound(bound: &TypeParamBound) -> Option<Type> {
    let TypeParamBound::Trait(bound) = bound else {
        return None;
    };
    let segment = bound.path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(assoc) if assoc.ident == "Output" => Some(assoc.ty.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use quote::ToTokens as _;

    use super::*;

    fn text(ty: &Type) -> String {
        ty.to_token_stream().to_string().replace(' ', "")
    }

    #[test]
    fn impl_trait_is_replaced_by_an_underscore_everywhere() {
        for (written, erased) in [
            ("u8", "u8"),
            ("impl Display", "_"),
            ("Result<impl Display + 'a, E>", "Result<_,E>"),
            ("(u8, [impl Copy; 2])", "(u8,[_;2])"),
            ("Box<[impl Copy]>", "Box<[_]>"),
            (
                "Box<dyn Iterator<Item = impl Copy>>",
                "Box<dynIterator<Item=_>>",
            ),
            ("&'a (impl Sized)", "&'a(_)"),
        ] {
            let ty = syn::parse_str(written).unwrap();
            assert_eq!(text(&erase_impl_trait(ty)), erased, "{written}");
        }
    }

    #[test]
    fn output_is_found_in_boxed_and_in_opaque_futures() {
        for (written, output) in [
            (
                "Pin<Box<dyn Future<Output = Result<u8, E>> + Send + 'a>>",
                "Result<u8,E>",
            ),
            ("impl core::future::Future<Output = ()> + Send", "()"),
            ("BoxFuture<'a, u8>", ""),
            (
                "BoxFuture<'a, Result<Pin<Box<dyn Future<Output = u8>>>, E>>",
                "",
            ),
        ] {
            let ty = syn::parse_str(written).unwrap();
            let found = future_output(&ty).as_ref().map(text);
            assert_eq!(found.unwrap_or_default(), output, "{written}");
        }
    }
}
