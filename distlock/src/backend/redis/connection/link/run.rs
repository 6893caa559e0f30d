//! Asks which run of the server a connection leads to. What a server had stored is there until its run ends.

use std::sync::Arc;
use std::time::Duration;

use redis::cmd;
use tokio::time::timeout;

use super::known_run::RunId;
use super::{Connected, Link};
use crate::backend::redis::connection::connect::info;
use crate::backend::redis::reply;
use crate::backend::{Fault, cause};
use crate::error::show;

impl Link {
    /// The id of the server's run. It is asked for once over each connection.
    pub(crate) async fn server_run(self: &Arc<Self>, patience: Duration) -> Result<RunId, Fault> {
        let connected = self.connected(patience).await?;
        let epoch = connected.epoch;
        if let Some(run) = self.known_run.over(epoch) {
            return Ok(run);
        }
        let asked = async {
            // One caller asks for all: the others find the answer when they get this lock.
            let _asking = self.known_run.asking.lock().await;
            match self.known_run.over(epoch) {
                Some(run) => Ok(run),
                None => self.ask_for_run(connected).await,
            }
        };
        match timeout(patience, asked).await {
            Ok(run) => run,
            Err(_) => {
                self.timed_out(epoch);
                let text = format!("no answer within {}", show(patience));
                Err(Fault::Unknown(cause(text)))
            }
        }
    }

    async fn ask_for_run(self: &Arc<Self>, mut connected: Connected) -> Result<RunId, Fault> {
        let epoch = connected.epoch;
        let mut info = cmd("INFO");
        info.arg("server");
        let run = match info.query_async::<String>(&mut connected.connection).await {
            Ok(text) => {
                self.answered(epoch);
                info::run_id(&text).map(Arc::from)
            }
            Err(error) => {
                if reply::breaks_connection(&error) {
                    self.broken(epoch, &error.to_string());
                }
                match reply::fault(error) {
                    fault if !fault.is_final() => return Err(fault),
                    _ => None,
                }
            }
        };
        *self.known_run.last.lock() = Some((epoch, run.clone()));
        Ok(run)
    }
}
