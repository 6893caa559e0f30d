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
pub(crate) fn read<'a>(targets: impl Iterator<Item = &'a Target> + Clone) -> Option<Cmd> {
    // With room for all of them: each renewal of many old holds makes such a command.
    let mut keys = 0;
    let mut bytes = EXISTS.len();
    for target in targets.clone() {
        keys += 1;
        bytes += key_of(target).len();
    }
    if keys == 0 {
        return None;
    }
    let mut read = Cmd::with_capacity(1 + keys, bytes);
    read.arg(EXISTS);
    for target in targets {
        read.arg(&*key_of(target));
    }
    Some(read)
}
