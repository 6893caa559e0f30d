//! The attribute `#[distributed_lock]`. Use it through the crate `distlock`, which re-exports it.
//!
//! An expansion passes through these modules, in this order:
//!
//! 1. `function` parses the annotated function and leaves its body as tokens.
//! 2. `options/setting` reads the options as names and unparsed values. `options/args` parses the values, with one module
//!    for each kind of value: `keys`, `template`, `duration`, `mode`, `keyword`.
//! 3. `check` refuses functions that cannot be locked. `check/key_variables` refuses keys that name unknown variables, and
//!    `check/plain_placeholder` those with a placeholder in the syntax of another library.
//! 4. `expand` generates the new function. If an earlier step failed, `fallback` generates the errors and the original
//!    function instead.

mod check;
mod errors;
mod expand;
mod fallback;
mod function;
mod options;

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
    let mut body = check::async_body(&function)?;
    check::return_type(&function)?;
    let args = syn::parse2(args)?;
    let bindings = body.bindings(&function);
    check::key_variables::check(&args, &function, &bindings)?;
    check::token(&args, &bindings)?;
    body.leave_to_keys(&args, &bindings);
    Ok(expand::function(&args, &function, &bindings, body))
}
