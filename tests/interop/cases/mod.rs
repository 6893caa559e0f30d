//! The cases of all primitives.

mod detached;
mod engines;
mod expire_after;
mod fair;
mod fenced;
mod latch;
mod leader;
mod locks;
mod mixed;
mod multi;
mod names;
mod permit;
mod read_write;
mod red;
mod semaphore;
mod share;

use crate::case::Case;

pub(crate) fn all() -> Vec<Case> {
    [
        // The longest ones first.
        engines::cases(),
        locks::cases(),
        fair::cases(),
        read_write::cases(),
        fenced::cases(),
        detached::cases(),
        leader::cases(),
        multi::cases(),
        red::cases(),
        semaphore::cases(),
        permit::cases(),
        latch::cases(),
        expire_after::cases(),
        names::cases(),
        mixed::cases(),
        share::cases(),
    ]
    .concat()
}
