//! The expansion after a mistake: the errors, and the original function.
//!
//! Without the function, rustc would report the same mistake again: as a missing `main`, as an unknown name at each call,
//! or as a missing trait item.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Error;

/// The errors, followed by the unchanged item.
pub(crate) fn errors_and_item(item: &TokenStream, error: &Error) -> TokenStream {
    let error = error.to_compile_error();
    // The key may have been the only use of a parameter. Its absence must not cause a second message.
    quote! {
        #error
        #[allow(unused_variables)]
        #item
    }
}
