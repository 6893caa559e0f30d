//! What each option of the attribute changes at run time.

mod condition;
mod hold_at_least;
mod keys;
mod lease;
mod limits;
mod mode;
mod on_lost;
mod token;
mod unavailable;
mod wait;

use super::*;
