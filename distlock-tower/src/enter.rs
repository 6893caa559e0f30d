//! The way from a request to its lock: its key, and the acquisition.

use std::time::Duration;

use bytes::Bytes;
use distlock::{Guard, Mode};
use http::request::Parts;
use http_body::Body;
use tokio::time::Instant;

use crate::error::BoxError;
use crate::key::{self, BadKeys, Named, Read, WholeBody};
use crate::respond::{self, Answer, LockInfo, is_grpc};
use crate::settings::{NotAcquired, Settings};

/// What came of a request's key.
pub(crate) enum Entry {
    Unlocked,
    Locked { guard: Guard, waited: Duration },
    Answered(Answer),
}

impl Settings {
    /// Whether this request is one to lock for, by what it says of itself.
    fn concerns(&self, parts: &Parts) -> bool {
        self.when.as_ref().is_none_or(|when| when(parts))
    }

    /// Reads the body first, which its key is to come from, and answers it anew.
    pub(crate) async fn enter_with<B>(
        &self,
        parts: &mut Parts,
        body: B,
        reads: WholeBody,
    ) -> (Entry, Option<B>)
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + From<Bytes>,
    {
        if !self.concerns(parts) {
            return (Entry::Unlocked, Some(body));
        }
        match reads.read(body).await {
            Ok(read) => {
                parts.extensions.insert(Read(read.clone()));
                (self.enter_keyed(parts).await, Some(B::from(read)))
            }
            Err(bad) => {
                let answer = self.refuse_keys(&bad, is_grpc(&parts.headers));
                (Entry::Answered(answer), None)
            }
        }
    }

    pub(crate) async fn enter(&self, parts: &mut Parts) -> Entry {
        if self.concerns(parts) {
            self.enter_keyed(parts).await
        } else {
            Entry::Unlocked
        }
    }

    async fn enter_keyed(&self, parts: &mut Parts) -> Entry {
        let grpc = is_grpc(&parts.headers);
        let keys = match self.key.of(parts).await {
            Named::Keys(keys) => key::distinct(keys),
            Named::Missing(_) if self.optional => return Entry::Unlocked,
            Named::Missing(what) => Err(BadKeys::Missing { what }),
            Named::Unclear(what) => Err(BadKeys::Unclear { what }),
            Named::Nothing => return Entry::Unlocked,
            Named::Answer(answer) => return Entry::Answered(respond::own_answer(answer, grpc)),
        };
        match keys {
            Ok(keys) => self.lock(self.modes.of(&parts.method), keys, grpc).await,
            Err(bad) => Entry::Answered(self.refuse_keys(&bad, grpc)),
        }
    }

    fn refuse_keys(&self, bad: &BadKeys, grpc: bool) -> Answer {
        self.answers.refuse_keys(bad, bad.rejection(), grpc)
    }

    async fn lock(&self, mode: Mode, keys: Vec<String>, grpc: bool) -> Entry {
        let since = Instant::now();
        let acquired = self.lock.acquire(mode, keys).await;
        let waited = since.elapsed();
        match acquired {
            Ok(guard) => Entry::Locked { guard, waited },
            Err(error) => {
                let mut answer = match error {
                    NotAcquired::TooManyPending { limit, busy } => {
                        self.answers.refuse_pending(limit, &busy, grpc)
                    }
                    NotAcquired::Failed(error) => self.answers.refuse(&error, grpc),
                };
                let held = Duration::ZERO;
                answer.extensions_mut().insert(LockInfo { waited, held });
                Entry::Answered(answer)
            }
        }
    }
}
