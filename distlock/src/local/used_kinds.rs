//! The kinds of primitives that a client has acquired, and which keys may have the same data because of that.

use crate::resource::key::Resource;
use crate::resource::kind::Kind;
use crate::sync::atomic::{AtomicU32, Ordering};

/// The kinds that were acquired, a bit for each. Most clients use one or two of those that share their data.
#[derive(Debug)]
pub(super) struct UsedKinds(AtomicU32);

impl UsedKinds {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub(super) fn note(&self, kind: Kind) {
        let bit = bit(kind);
        // Relaxed, here and below: what is looked for under a mutex was noted before it was put there.
        if self.0.load(Ordering::Relaxed) & bit == 0 {
            self.0.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The resources that may have the data of this one in this client: those of its family whose kind was ever acquired.
    pub(super) fn same_data<'r>(
        &self,
        resource: &'r Resource,
    ) -> impl Iterator<Item = Resource> + use<'r> {
        self.related(resource, 0)
    }

    /// Those of them that are of another kind.
    pub(super) fn same_data_of_others<'r>(
        &self,
        resource: &'r Resource,
    ) -> impl Iterator<Item = Resource> + use<'r> {
        self.related(resource, bit(resource.kind))
    }

    /// `unwanted`: the bits of the kinds that do not count.
    fn related<'r>(
        &self,
        resource: &'r Resource,
        unwanted: u32,
    ) -> impl Iterator<Item = Resource> + use<'r> {
        // Relaxed, as in `note`. Read once for all kinds.
        let used = self.0.load(Ordering::Relaxed) & !unwanted;
        // Most clients use one kind, and have no others to look at.
        let kinds = if used == 0 {
            &[]
        } else {
            resource.kind.same_data()
        };
        let kinds = kinds.iter().filter(move |kind| used & bit(**kind) != 0);
        kinds.map(|kind| Resource {
            kind: *kind,
            key: resource.key.clone(),
        })
    }
}

fn bit(kind: Kind) -> u32 {
    1 << kind as u32
}
