//! What takes the key, by the word with which a process tells another one.

use std::str::FromStr;

use distlock::Client;

use crate::bare::{Bare, names};
use crate::peers::{RedisLock, Rslock};

/// What takes the key in a row of several processes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Lock,
    Fair,
    Write,
    Bare,
    Rslock,
    RedisLock,
}

pub(super) const ALL: [Kind; 6] = [
    Kind::Lock,
    Kind::Fair,
    Kind::Write,
    Kind::Bare,
    Kind::Rslock,
    Kind::RedisLock,
];

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Fair => "fair",
            Self::Write => "write",
            Self::Bare => "bare",
            Self::Rslock => "rslock",
            Self::RedisLock => "redis-lock",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let mut all = ALL.into_iter();
        all.find(|kind| kind.word() == word)
            .ok_or_else(|| format!("{word:?} is no kind"))
    }
}

/// The connections of one process for all kinds.
#[derive(Clone)]
pub(super) struct Locks {
    client: Client,
    bare: Bare,
    rslock: Rslock,
    redis_lock: RedisLock,
}

impl Locks {
    pub(super) async fn new(url: &str) -> Self {
        Self {
            client: Client::connect(url).await.unwrap(),
            bare: Bare::new(url).await,
            rslock: Rslock::new(url),
            redis_lock: RedisLock::new(url).await,
        }
    }

    pub(super) fn bare(&self) -> Bare {
        self.bare.clone()
    }

    /// Takes the key of this kind, runs `inside` and frees the key. Bare commands do not wait, so the key must be free.
    pub(super) async fn enter(
        &self,
        kind: Kind,
        inside: impl Future<Output = ()> + Send + 'static,
    ) {
        let acquire = match kind {
            Kind::Lock => self.client.lock("shared:lock").acquire(),
            Kind::Fair => self.client.fair_lock("shared:fair").acquire(),
            Kind::Write => self.client.rw_lock("shared:write").write().acquire(),
            Kind::Bare => {
                let (mut bare, (key, owner, channel)) = (self.bare(), names(7));
                bare.acquire(&key, &owner).await;
                inside.await;
                bare.release(&key, &owner, &channel).await;
                return;
            }
            Kind::Rslock => return self.rslock.enter("shared:rslock", inside).await,
            Kind::RedisLock => return self.redis_lock.enter("shared:redis-lock", inside).await,
        };
        let guard = acquire.await.unwrap();
        inside.await;
        guard.release().await.unwrap();
    }
}
