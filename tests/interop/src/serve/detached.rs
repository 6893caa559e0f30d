//! Holds that travel to another process as a text.

use distlock::{Client, DetachedHold, Leased};
use serde_json::json;

use super::{Outcome, text};
use crate::protocol::Call;

/// The guard of a detached hold; `None` if the hold is not there any more.
pub(super) async fn attach<G: Leased>(client: &Client, call: &Call) -> Result<Option<G>, String> {
    match client.attach(&read::<G>(call)?).await {
        Ok(guard) => Ok(Some(guard)),
        Err(error) if error.is_lost() => Ok(None),
        Err(error) => Err(text(error)),
    }
}

/// Releases a detached hold. The value is false if the hold is not there any more.
pub(super) async fn release<G: Leased>(client: &Client, call: &Call) -> Outcome {
    match client.release_detached(&read::<G>(call)?).await {
        Ok(()) => Ok(json!(true)),
        Err(error) if error.is_lost() => Ok(json!(false)),
        Err(error) => Err(text(error)),
    }
}

fn read<G: Leased>(call: &Call) -> Result<DetachedHold<G>, String> {
    let text = call.detached.as_deref().ok_or("no detached hold")?;
    text.parse().map_err(super::text)
}
