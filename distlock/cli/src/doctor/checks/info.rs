//! What a server tells by name: the fields of `INFO` and the settings of `CONFIG GET`.

use std::collections::BTreeMap;

pub(super) type Info = BTreeMap<String, String>;

/// A field, or nothing if the server does not tell it.
pub(super) fn field<'a>(info: &'a Info, name: &str) -> &'a str {
    info.get(name).map_or("", String::as_str)
}

/// A field that is a number, or 0.
pub(super) fn number(info: &Info, name: &str) -> u64 {
    field(info, name).parse().unwrap_or_default()
}
