//! The items that the expansion of `#[distributed_lock]` names. Not part of the public API: they change without notice.

mod enter;
mod keys;
mod output;

pub use std::option::Option::Some;
pub use std::primitive::{bool, u64};
pub use std::result::Result::{Err, Ok};
pub use std::time::Duration;

pub use crate::resource::mode::Mode;
pub use enter::{AsLockSource, Enter, Entering, Held, hold, hold_value, mention, place_of};
pub use keys::{KeyList, KeyPart, Keys, Template, WholeKey, key};
pub use output::{
    Body, Handler, Handles, HandlesLost, LockOutput, LostHandler, NoResult, Plain, Returned, fail,
    handler, none, plain, returned,
};
