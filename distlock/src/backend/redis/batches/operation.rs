//! An attempt or a release that travels with others.

use redis::Value;
use tokio::sync::oneshot;

use super::collector::Collected;
use crate::backend::Fault;
use crate::backend::redis::script::Call;
use crate::resource::key::Key;
use crate::resource::owner::{OWNER_BUFFER, Owner};

/// What an operation does.
pub(in crate::backend::redis) enum Wanted {
    /// Acquires, for this lease in milliseconds.
    Acquire(u64),
    /// Releases, and publishes to this channel.
    Release(String),
}

/// What the caller of an operation is told.
pub(in crate::backend::redis) enum Told {
    /// The answer.
    Answer(Result<Value, Fault>),
    /// It was not sent, and its caller has to send it by itself.
    NotSent,
}

/// An attempt or a release that travels with others.
pub(in crate::backend::redis) struct Operation {
    pub(in crate::backend::redis) key: Key,
    pub(in crate::backend::redis) owner: Owner,
    pub(in crate::backend::redis) wanted: Wanted,
    /// `None` if nobody waits for the answer.
    pub(in crate::backend::redis) caller: Option<oneshot::Sender<Told>>,
}

impl Operation {
    /// Adds the arguments to the call of a batch, whose keys were added.
    pub(in crate::backend::redis) fn add_to(&self, call: Call) -> Call {
        let mut buffer = OWNER_BUFFER;
        let call = call.arg(self.owner.encode(&mut buffer));
        match &self.wanted {
            Wanted::Acquire(lease) => call.arg(*lease),
            Wanted::Release(channel) => call.arg(channel),
        }
    }
}

impl Collected for Operation {
    fn is_end(&self) -> bool {
        matches!(self.wanted, Wanted::Release(_))
    }

    fn bytes(&self) -> usize {
        let channel = match &self.wanted {
            Wanted::Acquire(_) => 0,
            Wanted::Release(channel) => channel.len(),
        };
        self.key.name().len() + channel + size_of_val(&OWNER_BUFFER)
    }

    fn is_wanted(&self) -> bool {
        self.caller
            .as_ref()
            .is_none_or(|caller| !caller.is_closed())
    }
}
