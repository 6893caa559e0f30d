//! Functions in macros, under lints, in modules without a prelude, and inside of each other.

pub mod depth;
pub mod dollar_crate;
pub mod extension_traits;
pub mod forbidden_lints;
pub mod lints;
pub mod macro_rules;
pub mod no_prelude;
pub mod shadowed_prelude;

use super::{ok, run};
