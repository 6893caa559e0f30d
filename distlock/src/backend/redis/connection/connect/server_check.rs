//! What each connection for commands finds out about its server.
//!
//! Every connection asks, and not the first one of a client alone: a name, Sentinels or a cluster may have led the client to
//! another server, and another server may stand at the same address.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisResult, Value};

use super::driven::Driven;
use super::{handshake, info};
use crate::backend::Fault;
use crate::backend::redis::connection::addresses::Endpoint;
use crate::backend::redis::reply;
use crate::config::MOST_NAMES_KEPT;
use crate::sync::Mutex;
use crate::telemetry;

/// What each connection for commands finds out about its server, and which servers the log already names.
#[derive(Debug)]
pub(crate) struct ServerCheck {
    /// How long the server may take for the answers.
    patience: Duration,
    /// The policy by which each of these servers evicts keys.
    evicting: Mutex<HashMap<Endpoint, String>>,
}

impl ServerCheck {
    pub(crate) fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            patience,
            evicting: Mutex::default(),
        })
    }

    /// Finds out whether the server has all that locks need, and warns once of one that evicts keys. A server that does not
    /// answer in time may still have it.
    pub(crate) async fn check(
        &self,
        endpoint: &Endpoint,
        connection: &mut Driven,
    ) -> Result<(), Fault> {
        let mut questions = redis::pipe();
        questions.ignore_errors();
        questions.add_command(handshake::ask_for_commands());
        questions.cmd("INFO").arg("memory");
        let answers = questions.query_async::<Vec<RedisResult<Value>>>(connection);
        let answers = match tokio::time::timeout(self.patience, answers).await {
            Ok(Ok(answers)) => answers,
            // The driver reports the end of a connection once, and nobody listens yet.
            Ok(Err(error)) if reply::breaks_connection(&error) => {
                return Err(handshake::refused(&endpoint.to_string(), error));
            }
            Ok(Err(_)) | Err(_) => return Ok(()),
        };
        let mut answers = answers.into_iter();
        if let Some(commands) = answers.next() {
            handshake::has_commands(&endpoint.to_string(), commands)?;
        }
        // Who may not ask, or gets no answer, is not warned. The answer is not needed for locks.
        if let Some(Ok(memory)) = answers.next() {
            self.warn_of_eviction(endpoint, &memory);
        }
        Ok(())
    }

    /// Warns of a server that deletes keys when its memory is full: once, unless it has changed meanwhile.
    fn warn_of_eviction(&self, endpoint: &Endpoint, memory: &Value) {
        let Some(policy) = info::evicts(memory) else {
            // So that the log warns again if the server evicts keys later.
            let _no_more = self.evicting.lock().remove(endpoint);
            return;
        };
        let is_known = {
            let mut evicting = self.evicting.lock();
            if evicting.len() >= MOST_NAMES_KEPT {
                evicting.clear();
            }
            let before = evicting.insert(endpoint.clone(), policy.clone());
            before.as_ref() == Some(&policy)
        };
        if !is_known {
            telemetry::server_evicts(endpoint, &policy);
        }
    }
}
