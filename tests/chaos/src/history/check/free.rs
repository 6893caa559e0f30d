//! A16: a wait until a key is free does not end while an owner has it all the time.

use super::Checker;
use crate::history::{Claim, Operation};

impl Checker<'_> {
    /// A16.
    pub(super) fn seen_free(
        &mut self,
        key: &str,
        claims: &[(Claim, &Operation)],
        ops: &[&Operation],
    ) {
        for op in ops.iter().filter(|op| op.seen_free) {
            let Some(returned) = op.returned else {
                continue;
            };
            let all_the_time =
                |(claim, _): &&(Claim, &Operation)| claim.from <= op.called && claim.to > returned;
            if let Some((_, owner)) = claims.iter().find(all_the_time) {
                let what = format!(
                    "{key}: {} was told that it is free, beside {}",
                    op.id, owner.id
                );
                self.found("A16", returned, what);
            }
        }
    }
}
