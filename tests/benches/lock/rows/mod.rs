//! The rows of one process, by what they compare.

pub(crate) mod engines;
pub(crate) mod growth;
pub(crate) mod hot_keys;
pub(crate) mod memory;
pub(crate) mod plain;
pub(crate) mod readers;
pub(crate) mod several;
