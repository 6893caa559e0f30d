//! The path of one request: get the key, acquire, run the handler inside the critical section, release, answer.
//!
//! # Invariants
//! 1. The handler is called, polled and dropped inside the section. It is dropped before the hold is released.
//! 2. The response is returned after the release is confirmed or has failed, unless the response body takes the hold over.
//! 3. If this future ends early, the hold ends too, unless the handler took the guard with `Held::keep`.

mod body;
mod protocol;

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use distlock::Error;
use futures_core::future::BoxFuture;
use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

pub use self::body::HoldBody;
use self::protocol::Protocol;
use crate::enter::EnterOutcome;
use crate::error::BoxError;
use crate::held::{Interruption, RequestHold, Unlocked};
use crate::key::{KeyedBody, WholeBody};
use crate::request_body;
use crate::respond::{self, Answer, LockInfo};
use crate::settings::{HoldUntil, Settings};

pin_project! {
    /// The response future of a [`LockService`](crate::LockService).
    ///
    /// # Cancel safety
    /// Dropping the future while it waits gives up the request's place in line. Dropping it later drops the handler's
    /// future inside the critical section, and then releases the lock in the background. A guard that the handler took
    /// with [`Held::keep`](crate::Held::keep) is not affected.
    ///
    /// # Examples
    /// See [`LockService`](crate::LockService).
    #[must_use = "futures do nothing unless awaited"]
    pub struct LockFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        settings: Arc<Settings>,
        client: Protocol,
        stage: Stage<S, B>,
        #[pin]
        handler: Option<S::Future>,
    }

    impl<S, B> PinnedDrop for LockFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        fn drop(this: Pin<&mut Self>) {
            this.drop_handler();
        }
    }
}

enum Stage<S: Service<Request<B>>, B> {
    // The body is here, unless the key comes from the body: then it is in the future.
    Entering(BoxFuture<'static, Entered<B>>, S, Option<B>),
    Unlocked,
    Running(RequestHold, LockTimes),
    Releasing(RequestHold, Outcome<S::Response, S::Error>, LockTimes),
    /// The answer is ready. The rest of the request's body is read first.
    Draining(BoxFuture<'static, ()>, Answer),
    Done,
}

/// What a handler came to.
enum Outcome<T, E> {
    Output(Result<T, E>),
    /// It was dropped, because the request's body took too long.
    BodyTimeout,
}

type Entered<B> = (Parts, EnterOutcome, Option<B>);

/// What the request's [`LockInfo`] is made from.
#[derive(Clone, Copy)]
struct LockTimes {
    waited: Duration,
    granted: Instant,
}

impl LockTimes {
    fn info(self) -> LockInfo {
        LockInfo {
            waited: self.waited,
            held: self.granted.elapsed(),
        }
    }
}

impl<S, B> LockFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(crate) fn new(settings: Arc<Settings>, service: S, request: Request<B>) -> Self {
        let (mut parts, body) = request.into_parts();
        let client = Protocol::of(&parts);
        let shared = Arc::clone(&settings);
        let entering = async move {
            let entry = shared.enter(&mut parts).await;
            (parts, entry, None)
        };
        let stage = Stage::Entering(Box::pin(entering), service, Some(body));
        Self::with_stage(stage, settings, client)
    }

    fn with_stage(stage: Stage<S, B>, settings: Arc<Settings>, client: Protocol) -> Self {
        Self {
            settings,
            client,
            stage,
            handler: None,
        }
    }

    /// Whether the lock is not acquired yet.
    pub(crate) fn is_entering(&self) -> bool {
        matches!(self.stage, Stage::Entering(..))
    }

    /// Drops the handler inside the section, so that code in its `Drop` still sees the scope.
    fn drop_handler(self: Pin<&mut Self>) {
        let mut this = self.project();
        match this.stage {
            Stage::Running(hold, _) => hold.enter(|| this.handler.set(None)),
            _ => this.handler.set(None),
        }
    }
}

impl<S, B> LockFuture<S, KeyedBody<B>>
where
    S: Service<Request<KeyedBody<B>>>,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    /// For a key that comes from the body.
    pub(crate) fn with_body(
        settings: Arc<Settings>,
        service: S,
        request: Request<B>,
        whole_body: WholeBody,
    ) -> Self {
        let (mut parts, body) = request.into_parts();
        let client = Protocol {
            has_whole_body: true,
            ..Protocol::of(&parts)
        };
        let shared = Arc::clone(&settings);
        let entering = async move {
            let (entry, body) = shared.enter_with_body(&mut parts, body, whole_body).await;
            (parts, entry, body)
        };
        let stage = Stage::Entering(Box::pin(entering), service, None);
        Self::with_stage(stage, settings, client)
    }
}

impl<S, B, R> Future for LockFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    B: 'static,
    R: Body,
{
    type Output = Result<Response<HoldBody<R>>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let this = self.as_mut().project();
            let answer = match this.stage {
                Stage::Entering(entering, ..) => {
                    let entered = ready!(entering.as_mut().poll(cx));
                    self.as_mut().call(entered)
                }
                Stage::Unlocked => {
                    let output = ready!(poll_handler(this.handler, cx));
                    self.as_mut().pass_on(output)
                }
                Stage::Running(hold, _) => {
                    let output = ready!(hold.poll_in(cx, |cx| poll_handler(this.handler, cx)));
                    self.as_mut().leave(output)
                }
                Stage::Releasing(hold, ..) => {
                    let released = ready!(hold.poll_release(cx));
                    self.as_mut().finish(released)
                }
                Stage::Draining(draining, _) => {
                    ready!(draining.as_mut().poll(cx));
                    self.as_mut().answer()
                }
                // Pending would hang the caller's task. The futures of `std` and of tokio panic as well.
                Stage::Done => panic!("`LockFuture` was polled after its completion"),
            };
            if let Some(answer) = answer {
                return Poll::Ready(answer);
            }
        }
    }
}

/// What the future completes with, or `None` if it is in its next stage.
type Completed<R, E> = Option<Result<Response<HoldBody<R>>, E>>;

impl<S, B, R> LockFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    B: 'static,
    R: Body,
{
    /// Calls the service, inside the section if there is one.
    fn call(mut self: Pin<&mut Self>, (parts, entry, read): Entered<B>) -> Completed<R, S::Error> {
        let mut this = self.as_mut().project();
        let Stage::Entering(_, mut service, mut body) = mem::replace(this.stage, Stage::Done)
        else {
            return None;
        };
        let granted = match entry {
            EnterOutcome::Answered(answer) => {
                let unread = body.as_mut().filter(|_| this.client.may_drain);
                let limit = this.settings.drain_limit;
                let draining = unread.and_then(|body| request_body::drain_unread(body, limit));
                return self.answer_after(draining, answer);
            }
            EnterOutcome::Unlocked => None,
            EnterOutcome::Locked {
                guard,
                waited,
                granted,
            } => Some((guard, LockTimes { waited, granted })),
        };
        // One of the two has it, see `Stage::Entering`.
        let mut request = Request::from_parts(parts, read.or(body)?);
        *this.stage = match granted {
            None => {
                request.extensions_mut().insert(Unlocked);
                this.handler.set(Some(service.call(request)));
                Stage::Unlocked
            }
            Some((guard, times)) => {
                let body_clock = (!this.client.has_whole_body)
                    .then(|| this.settings.time_body(&mut request, &guard));
                let last_holds = Arc::clone(&this.settings.last_holds);
                let (held, mut hold) =
                    RequestHold::new(guard, times.granted, body_clock.flatten(), last_holds);
                request.extensions_mut().insert(held);
                hold.enter(|| this.handler.set(Some(service.call(request))));
                Stage::Running(hold, times)
            }
        };
        None
    }

    /// Completes with an answer in place of the handler's, at once or when the rest of the request's body is read.
    fn answer_after(
        self: Pin<&mut Self>,
        draining: Option<BoxFuture<'static, ()>>,
        answer: Answer,
    ) -> Completed<R, S::Error> {
        match draining {
            Some(draining) => {
                *self.project().stage = Stage::Draining(draining, answer);
                None
            }
            None => Some(Ok(answer.map(HoldBody::answer))),
        }
    }

    fn answer(self: Pin<&mut Self>) -> Completed<R, S::Error> {
        match mem::replace(self.project().stage, Stage::Done) {
            Stage::Draining(_, answer) => Some(Ok(answer.map(HoldBody::answer))),
            _ => None,
        }
    }

    /// Completes with what an unlocked handler has completed with.
    fn pass_on(
        mut self: Pin<&mut Self>,
        output: Result<Response<R>, S::Error>,
    ) -> Completed<R, S::Error> {
        self.as_mut().drop_handler();
        *self.project().stage = Stage::Done;
        Some(output.map(|response| response.map(HoldBody::inner)))
    }

    /// Drops the handler, which has completed or was interrupted, and begins the release.
    fn leave(
        mut self: Pin<&mut Self>,
        output: Result<Result<Response<R>, S::Error>, Interruption>,
    ) -> Completed<R, S::Error> {
        // First: the drop of the handler still runs inside the section (invariant 1).
        self.as_mut().drop_handler();
        let stage = mem::replace(self.as_mut().project().stage, Stage::Done);
        let Stage::Running(mut hold, times) = stage else {
            return None;
        };
        let outcome = match output {
            // Dropping `hold` releases the lock in the background, if the handler did not keep the guard.
            Err(Interruption::Lost(lost)) => return Some(Ok(self.lost(&lost, times))),
            Err(Interruption::BodyTimeout(timeout)) => {
                respond::body_timed_out(&timeout, hold.keys());
                Outcome::BodyTimeout
            }
            Ok(Ok(response)) if self.body_takes_hold(&response) => {
                let length = body::length(&response);
                let with_hold = |body| HoldBody::with_hold(body, length, hold);
                return Some(Ok(with_info(response, times).map(with_hold)));
            }
            Ok(output) => Outcome::Output(output),
        };
        hold.begin_release();
        *self.project().stage = Stage::Releasing(hold, outcome, times);
        None
    }

    /// Whether the response body takes the hold over.
    fn body_takes_hold(&self, response: &Response<R>) -> bool {
        let is_empty = || response.body().is_end_stream() || body::length(response) == Some(0);
        self.settings.hold_until == HoldUntil::Body
            && self.client.sends_body(response.status())
            && !is_empty()
    }

    /// Replaces the response if the release found the hold lost, since others may have been inside the critical
    /// section. The handler's error stays, and so does its response if only the confirmation of the release is missing.
    fn finish(mut self: Pin<&mut Self>, released: Result<(), Error>) -> Completed<R, S::Error> {
        let stage = mem::replace(self.as_mut().project().stage, Stage::Done);
        let Stage::Releasing(_, outcome, times) = stage else {
            return None;
        };
        let output = match outcome {
            Outcome::Output(output) => output,
            Outcome::BodyTimeout => {
                // Nor does a loss change the answer: the handler has not completed either way.
                if let Err(error) = released {
                    respond::release_failed(&error);
                }
                return Some(Ok(self.body_timeout(times)));
            }
        };
        match (&output, released) {
            (_, Ok(())) => {}
            (Ok(_), Err(lost)) if lost.is_lost() => {
                return Some(Ok(self.lost(&lost.after_body(), times)));
            }
            (_, Err(error)) => respond::release_failed(&error),
        }
        Some(output.map(|response| with_info(response, times).map(HoldBody::inner)))
    }

    fn lost(&self, lost: &Error, times: LockTimes) -> Response<HoldBody<R>> {
        let answer = self.settings.refuse(lost, self.client.grpc);
        with_info(answer, times).map(HoldBody::answer)
    }

    fn body_timeout(&self, times: LockTimes) -> Response<HoldBody<R>> {
        let mut answer = self.settings.answers.refuse_body(self.client.grpc);
        if self.client.http1 {
            // The rest of the body would have to be read before the connection could be used again.
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(CONNECTION, close);
        }
        with_info(answer, times).map(HoldBody::answer)
    }
}

fn with_info<R>(mut response: Response<R>, times: LockTimes) -> Response<R> {
    response.extensions_mut().insert(times.info());
    response
}

fn poll_handler<F: Future>(handler: Pin<&mut Option<F>>, cx: &mut Context<'_>) -> Poll<F::Output> {
    match handler.as_pin_mut() {
        Some(handler) => handler.poll(cx),
        None => panic!("`LockFuture` was polled after its completion"),
    }
}

impl<S, B> fmt::Debug for LockFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Entering(..) => "Entering",
            Stage::Unlocked => "Unlocked",
            Stage::Running(..) => "Running",
            Stage::Releasing(..) => "Releasing",
            Stage::Draining(..) => "Draining",
            Stage::Done => "Done",
        };
        f.debug_tuple("LockFuture").field(&stage).finish()
    }
}
