//! The keys that the server tracks for holds.

use std::borrow::Cow;

use redis::Cmd;

use crate::backend::Target;
use crate::backend::redis::names;
use crate::resource::kind::Family;

/// The key that a hold is in.
pub(crate) fn key_of(target: &Target) -> Cow<'_, str> {
    let name = target.resource.key.name();
    match target.resource.kind.family() {
        Family::Permit => names::permits(name).into(),
        _ => (&**name).into(),
    }
}

const EXISTS: &str = "EXISTS";

/// The command that reads the keys of these holds; `None` without any.
pub(crate) fn read<'a>(targets: impl IntoIterator<Item = &'a Target>) -> Option<Cmd> {
    let keys: Vec<Cow<'_, str>> = targets.into_iter().map(key_of).collect();
    if keys.is_empty() {
        return None;
    }
    // With room for all of them: each renewal of many old holds makes such a command.
    let bytes: usize = keys.iter().map(|key| key.len()).sum();
    let mut read = Cmd::with_capacity(1 + keys.len(), EXISTS.len() + bytes);
    read.arg(EXISTS);
    for key in &keys {
        read.arg(&**key);
    }
    Some(read)
}
