//! The requests that both programs understand, and their answers.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a program is started with, as JSON in its only argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The URL of each server; several for Redlocks.
    pub urls: Vec<String>,
    /// The watchdog's lease in milliseconds.
    pub watchdog: u64,
    /// Whether distlock publishes and listens both ways in a cluster. Redisson does not read this.
    pub both_messages: bool,
}

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The reentrant lock.
    Reentrant,
    /// The fair lock.
    Fair,
    /// The read lock of a read/write lock.
    Read,
    /// Its write lock.
    Write,
    /// The spin lock.
    Spin,
    /// The fenced lock.
    Fenced,
    /// The non-reentrant lock.
    NonReentrant,
    /// The non-reentrant fair lock.
    NonReentrantFair,
    /// A multi-lock of reentrant locks.
    Multi,
    /// A Redlock.
    Red,
    /// A semaphore whose permits have no lease.
    Semaphore,
    /// A semaphore whose permits have an id and a lease.
    Permit,
    /// A count-down latch.
    Latch,
}

impl Kind {
    /// The locks that one owner has at a time, on one server.
    pub const EXCLUSIVE: [Self; 7] = [
        Self::Reentrant,
        Self::Fair,
        Self::Write,
        Self::Spin,
        Self::Fenced,
        Self::NonReentrant,
        Self::NonReentrantFair,
    ];

    /// Its name in the protocol and in the names of tests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reentrant => "reentrant",
            Self::Fair => "fair",
            Self::Read => "read",
            Self::Write => "write",
            Self::Spin => "spin",
            Self::Fenced => "fenced",
            Self::NonReentrant => "non_reentrant",
            Self::NonReentrantFair => "non_reentrant_fair",
            Self::Multi => "multi",
            Self::Red => "red",
            Self::Semaphore => "semaphore",
            Self::Permit => "permit",
            Self::Latch => "latch",
        }
    }
}

/// What a thread of a program is asked to do. Times are in milliseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The operation.
    pub op: String,
    /// The kind of object.
    pub kind: Kind,
    /// The names of the object: several for a multi-lock.
    pub names: Vec<String>,
    /// The longest time to wait. `None`: without a limit. Zero: a single attempt.
    pub wait: Option<u64>,
    /// The fixed lease; without one the watchdog renews the hold.
    pub lease: Option<u64>,
    /// A number of permits, or a count.
    pub count: Option<u32>,
    /// How long the hammer holds the lock each time.
    pub hold: Option<u64>,
    /// For how long the hammer works.
    pub time: Option<u64>,
    /// The id of a permit.
    pub permit: Option<String>,
    /// So long after its last use a number is to end.
    pub expire_after: Option<u64>,
    /// The text of a hold that was detached.
    pub detached: Option<String>,
}

impl Call {
    /// An operation without settings.
    #[must_use]
    pub fn new(op: &str, kind: Kind, names: &[String]) -> Self {
        Self {
            op: op.to_owned(),
            kind,
            names: names.to_vec(),
            wait: None,
            lease: None,
            count: None,
            hold: None,
            time: None,
            permit: None,
            expire_after: None,
            detached: None,
        }
    }

    /// With a limit to the wait.
    #[must_use]
    pub fn wait(mut self, wait: u64) -> Self {
        self.wait = Some(wait);
        self
    }

    /// With a fixed lease.
    #[must_use]
    pub fn lease(mut self, lease: u64) -> Self {
        self.lease = Some(lease);
        self
    }

    /// With the time after which a number is to end.
    #[must_use]
    pub fn expire_after(mut self, time: u64) -> Self {
        self.expire_after = Some(time);
        self
    }

    /// With the text of a hold that was detached.
    #[must_use]
    pub fn detached(mut self, text: &str) -> Self {
        self.detached = Some(text.to_owned());
        self
    }

    /// With a number.
    #[must_use]
    pub fn count(mut self, count: u32) -> Self {
        self.count = Some(count);
        self
    }
}

/// A request as it is sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The answer has the same number.
    pub id: u64,
    /// The thread that is asked. Its calls run one after the other.
    pub thread: String,
    /// What it is asked to do.
    #[serde(flatten)]
    pub call: Call,
}

/// An answer as it is sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Response {
    /// The number of the request.
    pub id: u64,
    /// When the call began, in nanoseconds of the machine's monotonic clock.
    pub began: u64,
    /// When it ended.
    pub ended: u64,
    /// What it returned.
    #[serde(default)]
    pub value: Value,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What this version of Redisson does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// What an acquisition got.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The owner in Redis.
    pub owner: String,
    /// The fencing token, where the lock has them.
    pub token: Option<u64>,
    /// The id of the permit, where it has one.
    pub permit: Option<String>,
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An error or an exception.
    Error(String),
    /// The version of Redisson does not have it.
    Missing(String),
    /// The process has ended.
    Ended,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(text) | Self::Missing(text) => f.write_str(text),
            Self::Ended => f.write_str("the process has ended"),
        }
    }
}
