//! Users of a server with few rights, and what they were denied.

use std::collections::BTreeSet;

use redis::Value;

use super::RedisServer;
use crate::rights::{self, PASSWORD};

/// How many denials a server keeps: by default so few that those of a whole suite push each other out.
const LOG_LENGTH: &str = "10000";

impl RedisServer {
    /// Creates a user, or changes it: with exactly these rights, and with the password of [`crate::rights`].
    ///
    /// A right that Redis 7.0 does not know is left out there.
    ///
    /// # Panics
    /// If the server refuses the rights.
    pub async fn set_user(&self, user: &str, rights: &[impl AsRef<str>]) {
        let password = format!(">{PASSWORD}");
        let mut words = vec!["ACL", "SETUSER", user, "reset", "on", &password];
        words.extend(["resetkeys", "resetchannels", "-@all"]);
        words.extend(rights.iter().map(AsRef::as_ref));
        let log_length = ["CONFIG", "SET", "acllog-max-len", LOG_LENGTH];
        // A Sentinel has no such setting.
        let _set: redis::RedisResult<()> = self.try_cli(&log_length).await;
        if self.try_cli::<Value>(&words).await.is_err() {
            words.retain(|word| !rights::is_unknown_to_some(word));
            self.cli(&words).await;
        }
    }

    /// Whether the server has a command.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    pub async fn knows(&self, command: &str) -> bool {
        let known = self.cli(&["COMMAND", "INFO", command]).await;
        matches!(known, Value::Array(found) if found != [Value::Nil] && found != [Value::Array(Vec::new())])
    }

    /// All commands, keys and channels that a user was denied since the server started.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    pub async fn denied_to(&self, user: &str) -> BTreeSet<String> {
        let log: Vec<Vec<(String, Value)>> =
            self.try_cli(&["ACL", "LOG", LOG_LENGTH]).await.unwrap();
        let text = |entry: &[(String, Value)], field: &str| {
            let found = entry.iter().find(|(name, _)| name == field);
            let value = found.map(|(_, value)| redis::from_redis_value_ref::<String>(value));
            value.and_then(Result::ok).unwrap_or_default()
        };
        let of_user = log.iter().filter(|entry| text(entry, "username") == user);
        of_user.map(|entry| text(entry, "object")).collect()
    }
}
