//! Kinds of functions: methods, generic ones, those that return a boxed future, and how a body ends.

pub mod boxed_future;
pub mod early_return;
pub mod free_fn;
pub mod generics;
pub mod impl_trait;
pub mod lifetimes;
pub mod methods;
pub mod patterns;
pub mod send;
pub mod trait_methods;
pub mod unusual;

use super::{ok, run};
