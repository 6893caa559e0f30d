//! Asks which run of the server a connection leads to. What a server had stored is there until its run ends.

use std::sync::Arc;
use std::time::Duration;

use redis::cmd;
use tokio::time::timeout;

use super::{Connected, Link, RunId};
use crate::backend::redis::connection::connect::info;
use crate::backend::redis::reply;
use crate::backend::{Fault, cause};
use crate::error::show;

impl Link {
    /// The id of the server's run. It is asked for once over each connection.
    pub(crate) async fn server_run(self: &Arc<Self>, patience: Duration) -> Result<RunId, Fault> {
        let connected = self.connected(patience).await?;
        let epoch = connected.epoch;
        let asked = async {
            // One caller asks for all: the others find the answer when they get this lock.
            let mut known = self.known_run.lock().await;
            match &*known {
                Some((of, run)) if *of == epoch => Ok(run.clone()),
                _ => {
                    let run = self.ask_for_run(connected).await?;
                    *known = Some((epoch, run.clone()));
                    Ok(run)
                }
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
        match info.query_async::<String>(&mut connected.connection).await {
            Ok(text) => {
                self.answered(epoch);
                Ok(info::run_id(&text).map(Arc::from))
            }
            Err(error) => {
                if reply::breaks_connection(&error) {
                    self.broken(epoch, &error.to_string());
                }
                match reply::fault(error) {
                    fault if !fault.is_final() => Err(fault),
                    _ => Ok(None),
                }
            }
        }
    }
}
