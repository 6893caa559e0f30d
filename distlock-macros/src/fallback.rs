//! What stands in for the expansion after a mistake: the error, and the function as it was.
//!
//! Without the function one mistake would also be reported as a missing `main`, an unknown name at
//! each call or a missing trait item.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Error;

/// The errors, then the item untouched.
pub(crate) fn errors_and_item(item: &TokenStream, error: &Error) -> TokenStream {
    let error = error.to_compile_error();
    // A parameter that only the key names is used by nobody now; that is no mistake of its own.
    quote! {
        #error
        #[allow(unused_variables)]
        #item
    }
}
