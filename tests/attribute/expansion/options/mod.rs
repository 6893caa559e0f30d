//! Each option of the attribute, in a function that compiles without warnings.

pub mod clients;
pub mod condition;
pub mod crate_path;
pub mod handlers;
pub mod hold_at_least;
pub mod key_expressions;
pub mod keys;
pub mod mode;
pub mod on_unavailable;
pub mod token;

use super::{ok, run};
