//! The options of the attribute: their names, their values, and which exclude each other.

pub(crate) mod args;
pub(crate) mod duration;
mod duration_text;
pub(crate) mod keys;
pub(crate) mod keyword;
pub(crate) mod mode;
pub(crate) mod setting;
pub(crate) mod template;
