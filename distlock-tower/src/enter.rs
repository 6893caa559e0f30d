//! From a request to its lock: the condition, the key, and the acquisition.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use distlock::{Guard, Mode};
use http::request::Parts;
use http_body::Body;
use tokio::time::Instant;

use crate::error::BoxError;
use crate::key::{self, BufferedBody, KeyError, KeyedBody, Keys, NoKeys, WholeBody};
use crate::request_body;
use crate::respond::{self, Answer, LockInfo, is_grpc};
use crate::settings::{NotAcquired, Settings};

/// What happens with a request next.
pub(crate) enum EnterOutcome {
    Unlocked,
    Locked {
        guard: Guard,
        waited: Duration,
        granted: Instant,
    },
    Answered(Answer),
}

impl Settings {
    /// Whether the methods and the conditions of the layer select this request.
    fn selects(&self, parts: &Parts) -> bool {
        let methods = self.methods.as_ref();
        methods.is_none_or(|methods| methods.contains(&parts.method))
            && self.condition.as_ref().is_none_or(|selects| selects(parts))
    }

    /// Reads the body for the key function, and returns it again for the handler.
    pub(crate) async fn enter_with_body<B>(
        &self,
        parts: &mut Parts,
        body: B,
        whole_body: WholeBody,
    ) -> (EnterOutcome, Option<KeyedBody<B>>)
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        if !self.selects(parts) {
            return (EnterOutcome::Unlocked, Some(KeyedBody::unread(body)));
        }
        let mut body = pin!(body);
        let (error, may_drain) = match whole_body.check(&parts.headers, &*body) {
            Err(error) => (error, request_body::may_drain(parts)),
            Ok(()) => match whole_body.read(body.as_mut()).await {
                Ok(read) => {
                    parts.extensions.insert(BufferedBody(read.clone()));
                    return (self.enter_keyed(parts).await, Some(KeyedBody::read(read)));
                }
                Err(error) => (error, request_body::may_drain_begun(parts)),
            },
        };
        if may_drain {
            request_body::drain(body, self.drain_limit).await;
        }
        let error = KeyError::from(error);
        let answer = self.refuse_keys(&error, is_grpc(&parts.headers));
        (EnterOutcome::Answered(answer), None)
    }

    pub(crate) async fn enter(&self, parts: &mut Parts) -> EnterOutcome {
        if self.selects(parts) {
            self.enter_keyed(parts).await
        } else {
            EnterOutcome::Unlocked
        }
    }

    async fn enter_keyed(&self, parts: &mut Parts) -> EnterOutcome {
        self.note_preflight(parts);
        let grpc = is_grpc(&parts.headers);
        let keys = match self.key.of(parts).await {
            Ok(keys) => key::distinct(keys),
            Err(NoKeys::Error(error)) if self.optional && error.is_absent() => {
                return EnterOutcome::Unlocked;
            }
            Err(NoKeys::Error(error)) => Err(error),
            Err(NoKeys::Answer(answer)) => {
                return EnterOutcome::Answered(respond::key_function_answer(*answer, grpc));
            }
        };
        match keys {
            Ok(keys) => self.acquire(self.mode.of(&parts.method), keys, grpc).await,
            Err(error) => EnterOutcome::Answered(self.refuse_keys(&error, grpc)),
        }
    }

    fn refuse_keys(&self, error: &KeyError, grpc: bool) -> Answer {
        self.answers.refuse_keys(error, error.rejection(), grpc)
    }

    async fn acquire(&self, mode: Mode, keys: Keys, grpc: bool) -> EnterOutcome {
        let started = Instant::now();
        let acquired = self.lock.acquire(mode, keys).await;
        let ended = Instant::now();
        let waited = ended.saturating_duration_since(started);
        match acquired {
            Ok(guard) => EnterOutcome::Locked {
                guard,
                waited,
                granted: ended,
            },
            Err(error) => {
                let mut answer = match error {
                    NotAcquired::TooManyPending { limit, busy } => {
                        self.answers.refuse_pending(limit, &busy, grpc)
                    }
                    NotAcquired::Failed(error) => self.refuse(&error, grpc),
                };
                let held = Duration::ZERO;
                answer.extensions_mut().insert(LockInfo { waited, held });
                EnterOutcome::Answered(answer)
            }
        }
    }
}
