//! What a round over all servers has come to.

use smallvec::SmallVec;

use crate::clock::Tick;
use crate::error::Error;
use crate::local::HoldShares;
use crate::wait::refusal::RefusedBy;

/// The result of a round.
pub(super) struct Round {
    /// When the servers were asked, for the last time if the future was not polled for long.
    pub(super) began: Tick,
    pub(super) shares: HoldShares,
    pub(super) refused: Vec<ServerRefusal>,
    /// How many of the servers that refused must change before there can be a quorum.
    pub(super) wanting: usize,
    /// The error, if fewer servers than a quorum answered.
    pub(super) unanswered: Option<Error>,
    /// The servers that refused for good, for example because they deny the command.
    pub(super) refused_for_good: SmallVec<[usize; 8]>,
}

/// The pairs of clients that were found to use two servers, by their indices.
pub(super) type Apart = Vec<(usize, usize)>;

/// A server that refused.
pub(super) struct ServerRefusal {
    pub(super) server: usize,
    pub(super) by: RefusedBy,
}
