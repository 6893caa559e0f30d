//! Questions to a server, asked often enough by tests to have a name.
//!
//! Every question opens a connection of its own and closes it: none of them stands behind a
//! blocked one, and none outlives its answer.

use std::collections::HashMap;
use std::fmt;

use redis::{FromRedisValue, RedisResult, Value};

use super::{HARNESS_NAME, RedisServer};

/// One line of `CLIENT LIST`: a connection as the server sees it.
#[derive(Clone, Debug)]
pub struct ClientLine {
    fields: HashMap<String, String>,
}

impl ClientLine {
    /// Any field by the server's name for it (`cmd`, `sub`, `age`, `flags`, ...), empty if absent.
    #[must_use]
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// The server's id of the connection.
    ///
    /// # Panics
    /// If the server did not tell one.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.field("id").parse().expect("CLIENT LIST tells ids")
    }

    /// Whether it has a subscription of any sort.
    #[must_use]
    pub fn subscribes(&self) -> bool {
        ["sub", "psub", "ssub"]
            .iter()
            .any(|name| !["", "0"].contains(&self.field(name)))
    }

    /// Whether the harness itself opened it.
    #[must_use]
    pub fn is_harness(&self) -> bool {
        self.field("name") == HARNESS_NAME
    }
}

impl fmt::Display for ClientLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [id, name, cmd, sub, age] = ["id", "name", "cmd", "sub", "age"].map(|n| self.field(n));
        write!(f, "id={id} name={name} cmd={cmd} sub={sub} age={age}")
    }
}

impl RedisServer {
    /// Runs one command.
    ///
    /// # Panics
    /// If the server cannot be reached or answers with an error.
    pub async fn cli(&self, words: &[&str]) -> Value {
        self.ask(words).await
    }

    /// Runs one command that may be refused.
    ///
    /// # Errors
    /// What the server, or the connection to it, answered.
    pub async fn try_cli<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query_async(&mut self.try_connection().await?).await
    }

    /// As [`RedisServer::try_cli`], with the error as a text: what was seen instead.
    pub(super) async fn try_text<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, String> {
        let answer = self.try_cli(words).await;
        answer.map_err(|error| error.to_string())
    }

    /// `PTTL`: milliseconds to live, -1 for a key without an end, -2 for no key.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    pub async fn pttl(&self, key: &str) -> i64 {
        self.ask(&["PTTL", key]).await
    }

    /// `HGETALL`, empty for no key.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    pub async fn hgetall(&self, key: &str) -> HashMap<String, String> {
        self.ask(&["HGETALL", key]).await
    }

    /// All keys, in order. For small keyspaces.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    pub async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(&["KEYS", "*"]).await;
        keys.sort_unstable();
        keys
    }

    /// `INFO` of one section, by field.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    pub async fn info(&self, section: &str) -> HashMap<String, String> {
        let text: String = self.ask(&["INFO", section]).await;
        fields(&text, ':')
    }

    /// As [`RedisServer::info`], of a server that may be down.
    pub(super) async fn try_info(&self, section: &str) -> Result<HashMap<String, String>, String> {
        let text: String = self.try_text(&["INFO", section]).await?;
        Ok(fields(&text, ':'))
    }

    /// How often a command ran since the start or `CONFIG RESETSTAT`, also inside of scripts.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    pub async fn command_calls(&self, command: &str) -> u64 {
        let stats = self.info("commandstats").await;
        let line = stats.get(&format!("cmdstat_{}", command.to_lowercase()));
        let calls =
            line.and_then(|line| line.split(',').find_map(|part| part.strip_prefix("calls=")));
        calls.map_or(0, |calls| calls.parse().expect("calls is a number"))
    }

    /// `CLIENT LIST`, the harness's own connections included.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    pub async fn client_list(&self) -> Vec<ClientLine> {
        let text: String = self.ask(&["CLIENT", "LIST"]).await;
        client_lines(&text)
    }

    /// `PUBSUB CHANNELS`: channels with a subscriber, in order.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    pub async fn pubsub_channels(&self) -> Vec<String> {
        let mut channels: Vec<String> = self.ask(&["PUBSUB", "CHANNELS"]).await;
        channels.sort_unstable();
        channels
    }

    /// `PUBSUB NUMSUB` of one channel.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    pub async fn pubsub_numsub(&self, channel: &str) -> u64 {
        let (_, count): (String, u64) = self.ask(&["PUBSUB", "NUMSUB", channel]).await;
        count
    }

    /// `CLIENT KILL TYPE`: ends all connections of a type (`normal`, `pubsub`), gives their number.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    pub async fn kill_clients(&self, of_type: &str) -> u64 {
        self.ask(&["CLIENT", "KILL", "TYPE", of_type, "SKIPME", "yes"])
            .await
    }

    async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        match self.try_cli(words).await {
            Ok(answer) => answer,
            Err(error) => panic!("{words:?} on {}: {error}", self.url()),
        }
    }
}

pub(crate) fn client_lines(text: &str) -> Vec<ClientLine> {
    let line = |line: &str| ClientLine {
        fields: fields(&line.replace(' ', "\n"), '='),
    };
    text.lines().map(line).collect()
}

/// `name<separator>value` by line, other lines left out.
pub(super) fn fields(text: &str, separator: char) -> HashMap<String, String> {
    let pair = |line: &str| {
        let (name, value) = line.trim_end().split_once(separator)?;
        Some((name.to_owned(), value.to_owned()))
    };
    text.lines().filter_map(pair).collect()
}
