//! The attribute of the crate `distlock`, which re-exports it: use it from there.
//!
//! One stage, one file: `setting` (names and values as written), `args` (what they mean, with a file for each sort of
//! value), `function` (what it was written on), `check` (is it allowed), `expand` (tokens), `fallback` (an error, and
//! the function as it was).

mod args;
mod async_trait_params;
mod check;
mod duration;
mod errors;
mod expand;
mod fallback;
mod function;
mod keys;
mod keyword;
mod mode;
mod return_type;
mod setting;
mod template;

use proc_macro::TokenStream;

#[doc = include_str!("../docs/distributed_lock.md")]
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    let item = item.into();
    expanded(args.into(), &item)
        .unwrap_or_else(|error| fallback::errors_and_item(&item, &error))
        .into()
}

fn expanded(
    args: proc_macro2::TokenStream,
    item: &proc_macro2::TokenStream,
) -> syn::Result<proc_macro2::TokenStream> {
    let function = check::function(item.clone())?;
    let body = check::async_body(&function)?;
    check::return_type(&function)?;
    let args = syn::parse2(args)?;
    let bindings = body.bindings(&function);
    check::key_variables(&args, &function, &bindings)?;
    check::token(&args, &bindings)?;
    Ok(expand::function(&args, &function, &bindings, body))
}
