//! One request's way: work out the key, acquire, run the handler inside the critical section, release, answer.
//!
//! # Invariants
//! 1. The handler is called, polled and dropped inside the section, and is gone before the hold is released.
//! 2. The response is returned only after the release was confirmed, or failed.
//! 3. Whatever ends this future early ends the hold too, unless the handler took the guard with `Held::keep`.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use distlock::{Error, Guard, Section};
use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::body::HoldBody;
use crate::held::{Held, Tenancy, Unlocked};
use crate::key::{self, Named};
use crate::respond::{self, Answer};
use crate::settings::Settings;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pin_project! {
    /// The response future of a [`LockService`](crate::LockService).
    ///
    /// # Cancel safety
    /// Dropping it while it waits gives up the request's place in line. Dropping it later drops the handler's future
    /// first, inside the critical section, and then releases the lock in the background; a guard that the handler took
    /// with [`Held::keep`](crate::Held::keep) stays.
    #[must_use = "futures do nothing unless awaited"]
    pub struct LockFuture<S, B>
    where
        S: Service<Request<B>>,
    {
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
    Entering(Boxed<(Parts, Entry)>, S, B),
    Unlocked,
    // The section first: its frame closes before the hold ends.
    Running(Section, Tenancy),
    Releasing(Boxed<Result<(), Error>>, Result<S::Response, S::Error>),
    Done,
}

/// What came of a request's key.
enum Entry {
    Unlocked,
    Locked(Guard),
    Answered(Answer),
}

impl<S, B> LockFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(crate) fn new(settings: Arc<Settings>, service: S, request: Request<B>) -> Self {
        let (mut parts, body) = request.into_parts();
        let entering = async move {
            let entry = settings.enter(&mut parts).await;
            (parts, entry)
        };
        Self {
            stage: Stage::Entering(Box::pin(entering), service, body),
            handler: None,
        }
    }

    fn drop_handler(self: Pin<&mut Self>) {
        let mut this = self.project();
        match this.stage {
            Stage::Running(section, _) => section.enter(|| this.handler.set(None)),
            _ => this.handler.set(None),
        }
    }
}

impl Settings {
    async fn enter(&self, parts: &mut Parts) -> Entry {
        let keys = match self.key.of(parts).await {
            Named::Keys(keys) => keys,
            Named::Nothing => return Entry::Unlocked,
            Named::Answer(answer) => return Entry::Answered(respond::collected(answer).await),
        };
        let keys = match key::distinct(keys) {
            Ok(keys) => keys,
            Err(bad) => return Entry::Answered(respond::bad_keys(&bad)),
        };
        let acquire = match <[String; 1]>::try_from(keys) {
            Ok([key]) => self.client.lock(key).acquire(),
            Err(keys) => self.client.multi_lock(keys).acquire(),
        };
        let mut acquire = acquire.wait(self.wait);
        if let Some(lease) = self.lease {
            acquire = acquire.lease(lease);
        }
        match acquire.await {
            Ok(guard) => Entry::Locked(guard),
            Err(error) => Entry::Answered(respond::refused(&error)),
        }
    }
}

impl<S, B, R> Future for LockFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<HoldBody<R>>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let this = self.as_mut().project();
            let answer = match this.stage {
                Stage::Entering(entering, ..) => {
                    let (parts, entry) = ready!(entering.as_mut().poll(cx));
                    self.as_mut().call(parts, entry)
                }
                Stage::Unlocked => {
                    let output = ready!(poll_handler(this.handler, cx));
                    self.as_mut().leave(Ok(output))
                }
                Stage::Running(section, _) => {
                    let output = ready!(section.poll_in(cx, |cx| poll_handler(this.handler, cx)));
                    self.as_mut().leave(output)
                }
                Stage::Releasing(releasing, _) => {
                    let released = ready!(releasing.as_mut().poll(cx));
                    self.as_mut().finish(released)
                }
                Stage::Done => return Poll::Pending,
            };
            if let Some(answer) = answer {
                return Poll::Ready(answer);
            }
        }
    }
}

type Answered<R, E> = Option<Result<Response<HoldBody<R>>, E>>;

impl<S, B, R> LockFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    /// Calls the service, inside the section where there is one.
    fn call(self: Pin<&mut Self>, parts: Parts, entry: Entry) -> Answered<R, S::Error> {
        let mut this = self.project();
        let Stage::Entering(_, mut service, body) = mem::replace(this.stage, Stage::Done) else {
            return None;
        };
        let mut request = Request::from_parts(parts, body);
        *this.stage = match entry {
            Entry::Answered(answer) => return Some(Ok(answer.map(HoldBody::answer))),
            Entry::Unlocked => {
                request.extensions_mut().insert(Unlocked);
                this.handler.set(Some(service.call(request)));
                Stage::Unlocked
            }
            Entry::Locked(guard) => {
                let mut section = guard.section();
                let (held, tenancy) = Held::new(guard);
                request.extensions_mut().insert(held);
                section.enter(|| this.handler.set(Some(service.call(request))));
                Stage::Running(section, tenancy)
            }
        };
        None
    }

    /// The handler is done, or the hold is lost under it. Begins the release, if there is one to wait for.
    fn leave(
        mut self: Pin<&mut Self>,
        output: Result<Result<Response<R>, S::Error>, Error>,
    ) -> Answered<R, S::Error> {
        self.as_mut().drop_handler();
        let this = self.project();
        let guard = match mem::replace(this.stage, Stage::Done) {
            Stage::Running(section, tenancy) => {
                drop(section);
                tenancy.end()
            }
            _ => None,
        };
        match (output, guard) {
            // The guard is dropped: what may be left of the hold is released in the background.
            (Err(lost), _) => Some(Ok(respond::refused(&lost).map(HoldBody::answer))),
            (Ok(output), None) => Some(output.map(own)),
            (Ok(output), Some(guard)) => {
                *this.stage = Stage::Releasing(Box::pin(guard.release()), output);
                None
            }
        }
    }

    /// A response of a handler that was not alone must not pass for one that was. Its own error stays, and so does a
    /// response whose lock is only known to come free with its lease.
    fn finish(self: Pin<&mut Self>, released: Result<(), Error>) -> Answered<R, S::Error> {
        let Stage::Releasing(_, output) = mem::replace(self.project().stage, Stage::Done) else {
            return None;
        };
        match (output, released) {
            (output, Ok(())) => Some(output.map(own)),
            (Ok(_), Err(lost)) if lost.is_lost() => {
                Some(Ok(respond::refused(&lost).map(HoldBody::answer)))
            }
            (output, Err(error)) => {
                respond::release_failed(&error);
                Some(output.map(own))
            }
        }
    }
}

fn poll_handler<F: Future>(handler: Pin<&mut Option<F>>, cx: &mut Context<'_>) -> Poll<F::Output> {
    match handler.as_pin_mut() {
        Some(handler) => handler.poll(cx),
        None => Poll::Pending,
    }
}

fn own<R>(response: Response<R>) -> Response<HoldBody<R>> {
    response.map(HoldBody::inner)
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
            Stage::Done => "Done",
        };
        f.debug_tuple("LockFuture").field(&stage).finish()
    }
}
