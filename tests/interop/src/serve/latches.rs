//! Count-down latches.

use std::future::IntoFuture as _;

use distlock::Client;
use serde_json::json;

use super::{Outcome, millis, name, text, unknown, unless_busy};
use crate::protocol::Call;

pub(super) async fn perform(client: &Client, call: &Call) -> Outcome {
    let mut latch = client.count_down_latch(name(call));
    if let Some(time) = millis(call.expire_after) {
        latch = latch.expire_after(time);
    }
    match call.op.as_str() {
        "set_count" => {
            let set = latch.try_set_count(call.count.unwrap_or(1));
            Ok(json!(set.await.map_err(text)?))
        }
        "count_down" => {
            latch.count_down().await.map_err(text)?;
            Ok(json!(true))
        }
        "count" => Ok(json!(latch.count().await.map_err(text)?)),
        "await" => {
            let mut wait = latch.wait();
            if let Some(limit) = millis(call.wait) {
                wait = wait.timeout(limit);
            }
            let opened = unless_busy(wait.into_future().await)?;
            Ok(json!(opened.is_some()))
        }
        _ => unknown(call),
    }
}
