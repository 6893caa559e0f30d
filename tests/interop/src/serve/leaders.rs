//! Candidates for the leader of a key.

use std::collections::HashMap;

use distlock::{Client, Error, Leader};
use serde_json::json;
use tokio::task::JoinHandle;

use super::{Outcome, text};
use crate::protocol::Call;

/// The candidates of a worker that campaign or lead, by their keys.
pub(super) type Leaders = HashMap<String, (Leader, JoinHandle<Result<Option<()>, Error>>)>;

/// What a candidate is asked to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// Campaigns, and leads until it resigns.
    Campaign,
    /// Waits until it leads.
    Elected,
    /// Its term, if it leads.
    Term,
    Resign,
}

impl Op {
    pub(super) fn of(call: &Call) -> Option<Self> {
        match call.op.as_str() {
            "campaign" => Some(Self::Campaign),
            "elected" => Some(Self::Elected),
            "term" => Some(Self::Term),
            "resign" => Some(Self::Resign),
            _ => None,
        }
    }
}

pub(super) async fn perform(client: &Client, leaders: &mut Leaders, op: Op, key: &str) -> Outcome {
    if let Op::Campaign = op {
        let leader = client.leader(key);
        let run = tokio::spawn(leader.run(|_| std::future::pending()));
        leaders.insert(key.to_owned(), (leader, run));
        return Ok(json!(true));
    }
    let (leader, run) = leaders
        .get_mut(key)
        .ok_or("this thread does not campaign")?;
    match op {
        Op::Campaign | Op::Elected => Ok(json!(leader.elected().await)),
        Op::Term => Ok(json!(leader.term())),
        Op::Resign => {
            leader.resign().await;
            let ended = run.await.map_err(|error| error.to_string())?;
            leaders.remove(key);
            Ok(json!(ended.map_err(text)?.is_none()))
        }
    }
}
