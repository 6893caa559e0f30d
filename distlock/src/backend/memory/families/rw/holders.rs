//! The holders of a read/write lock, and whose turn it is.

use std::collections::BTreeMap;

use crate::clock::Tick;
use crate::resource::owner::Owner;

/// The holders of a lock. With a writer the mode is `write`, and the readers are those inside the writer's hold.
#[derive(Debug, Default)]
pub(crate) struct ReadWrite {
    pub(super) writer: Option<(Owner, u32)>,
    pub(super) readers: BTreeMap<Owner, Reader>,
}

/// A reader: how often it has entered the lock, and when the timeouts of all these entries end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    pub(super) count: u32,
    pub(super) ends: Tick,
}

/// Whose turn it is among our own clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// This waiting writer's: no further reader is granted.
    Writer(Owner),
    /// The readers': no waiting writer is granted.
    Readers,
}

impl ReadWrite {
    pub(crate) fn has_writer(&self) -> bool {
        self.writer.is_some()
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = (Vec<u8>, u64)> {
        let writer = self.writer.iter().map(writer_name);
        let reader = |(owner, reader): (&Owner, &Reader)| (owner.text(), reader.count);
        let holders = self.readers.iter().map(reader).chain(writer);
        holders.map(|(name, count)| (name.into_bytes(), u64::from(count)))
    }

    /// The holders by their names, with their counts and the ends of the readers among them. A reader whose timeouts have
    /// ended holds nothing any more.
    pub(crate) fn alive(
        &self,
        now: Tick,
    ) -> impl Iterator<Item = (String, u32, Option<Tick>)> + '_ {
        let alive = self
            .readers
            .iter()
            .filter(move |(_, reader)| reader.ends > now);
        let readers = alive.map(|(owner, reader)| (owner.text(), reader.count, Some(reader.ends)));
        let writer = self.writer.iter().map(writer_name);
        readers.chain(writer.map(|(name, count)| (name, count, None)))
    }

    /// One of the readers whose timeouts have not ended.
    pub(super) fn live_reader(&self, now: Tick) -> Option<Owner> {
        let mut readers = self.readers.iter();
        let alive = readers.find(|(_, reader)| reader.ends > now);
        alive.map(|(owner, _)| *owner)
    }

    pub(super) fn is_written_by(&self, owner: Owner) -> bool {
        self.writer.is_some_and(|(writer, _)| writer == owner)
    }

    /// Removes the readers whose timeouts have ended, and answers when the last of the others ends.
    pub(super) fn drop_expired_readers(&mut self, now: Tick) -> Option<Tick> {
        self.readers.retain(|_, reader| reader.ends > now);
        self.readers.values().map(|reader| reader.ends).max()
    }
}

/// The name that the server shows for a writer: its owner with the mode at the end.
pub(super) fn writer_name((owner, count): &(Owner, u32)) -> (String, u32) {
    (format!("{owner}:write"), *count)
}
