//! An acquisition that a scope admits beside its own hold: a read inside a write.
//!
//! The server grants it because its client has the write. So this is only right while the scope is open: after that the writer may
//! go on alone, and the acquisition waits for it like any other.

use super::observed::observed;
use super::reentry::{Beside, Enclosing, check_open, search_again};
use crate::error::Error;
use crate::local::HoldShare;
use crate::sync::first;
use crate::wait::{self, ClientRequest};

pub(super) async fn acquire_beside(one: ClientRequest, beside: Beside) -> Result<HoldShare, Error> {
    let key = &one.requested().resource.key;
    // One acquisition, also if it goes on without the scope.
    let acquire = || acquire_while_admitted(one.clone(), beside);
    observed(&one, [key].into_iter(), acquire).await
}

async fn acquire_while_admitted(
    mut one: ClientRequest,
    mut beside: Beside,
) -> Result<HoldShare, Error> {
    loop {
        check_open(&one)?;
        let acquire = async {
            let granted = wait::acquire(&one.registry, &one.request).await;
            granted.map(Some)
        };
        let ended = async {
            beside.ended().await;
            Ok(None)
        };
        // If the admission ends first, the drop of the acquisition ends what the server may still grant.
        let granted = first(acquire, ended).await?;
        // Only now it is known that the scope was open when the server decided.
        if let Some(mut shares) = granted
            && !beside.has_ended()
        {
            return Ok(HoldShare::new(shares.remove(0), Some(beside.permit)));
        }
        match search_again(beside, &mut one).await? {
            Enclosing::Beside(further_out) => beside = further_out,
            Enclosing::Reenter(share, _) => return Ok(share),
            Enclosing::None => break,
        }
    }
    check_open(&one)?;
    let mut shares = wait::acquire(&one.registry, &one.request).await?;
    Ok(HoldShare::new(shares.remove(0), None))
}
