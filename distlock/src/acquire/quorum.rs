//! The holds of a Redlock that scopes around the acquisition already have.

use super::reentry::{Enclosing, OpenGates, pass_gates, within_scopes};
use crate::error::Error;
use crate::hold::HoldView;
use crate::local::HoldShares;
use crate::wait::ClientRequest;

/// Re-enters those holds of a quorum that enclosing scopes already have. Also returns the view of the innermost of them.
pub(super) async fn reenter(
    requests: &mut [ClientRequest],
) -> Result<(HoldShares, Option<HoldView>), Error> {
    let Some(frames) = within_scopes(requests.iter_mut()) else {
        return Ok((HoldShares::new(), None));
    };
    loop {
        let all: Vec<&ClientRequest> = requests.iter().collect();
        // Boxed, since most acquisitions have no scope around them.
        let gates = Box::pin(pass_gates(&frames, &all, None)).await?;
        if let Some(entered) = enter(requests, gates)? {
            return Ok(entered);
        }
    }
}

/// Returns `None` if one of the scopes has closed since.
fn enter(
    requests: &mut [ClientRequest],
    gates: OpenGates,
) -> Result<Option<(HoldShares, Option<HoldView>)>, Error> {
    let mut shares = HoldShares::new();
    let mut outer = None;
    for (one, gate) in requests.iter_mut().zip(gates) {
        match gate.map(|gate| gate.enter(one)) {
            None | Some(Ok(Some(Enclosing::None))) => {}
            Some(Ok(None)) => return Ok(None),
            Some(Ok(Some(Enclosing::Reenter(share, view)))) => {
                shares.push(share);
                outer.get_or_insert(view);
            }
            Some(Ok(Some(Enclosing::Beside(_)))) => {
                let reason = "a Redlock cannot be read inside its own write";
                return Err(Error::deadlock(one.requested().resource.key.text(), reason));
            }
            // The hold on one server is lost. The other servers may still be a quorum.
            Some(Err(error)) if error.is_lost() => {}
            Some(Err(error)) => return Err(error),
        }
    }
    Ok(Some((shares, outer)))
}
