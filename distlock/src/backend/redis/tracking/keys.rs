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

/// The command that reads the keys of these holds; `None` without any.
pub(crate) fn read<'a>(targets: impl IntoIterator<Item = &'a Target>) -> Option<Cmd> {
    let mut targets = targets.into_iter().peekable();
    targets.peek()?;
    let mut read = redis::cmd("EXISTS");
    for target in targets {
        read.arg(&*key_of(target));
    }
    Some(read)
}
