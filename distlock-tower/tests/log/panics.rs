//! Subscribers of the log that panic.

use std::convert::Infallible;
use std::io::Write;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use distlock::Client;
use distlock_tower::{HoldUntil, LockLayer};
use futures_util::FutureExt as _;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};
use tracing::Subscriber;
use tracing::span::Id;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// Panics when a span is left, after this many times.
struct PanicsAtExit(Arc<AtomicI64>);

impl<S: Subscriber> tracing_subscriber::Layer<S> for PanicsAtExit {
    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 0 {
            resume_unwind(Box::new("the subscriber"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn response_of_a_task_whose_span_is_left_with_a_panic_keeps_no_lock() {
    let succeeding = Arc::new(AtomicI64::new(i64::MAX));
    let panics = PanicsAtExit(Arc::clone(&succeeding));
    let _listening = tracing::subscriber::set_default(tracing_subscriber::registry().with(panics));
    for exits in 0.. {
        let client = Client::in_memory();
        let layer = LockLayer::new(client.clone()).key(|_: &Parts| "k");
        let layer = layer.hold_until(HoldUntil::Body).run_to_completion();
        let handler = service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(String::from("done")))
        });
        let mut response = layer.layer(handler).oneshot(Request::new(())).boxed();
        // The first poll spawns the task, in this span.
        let span = tracing::info_span!("request");
        assert!(span.in_scope(|| (&mut response).now_or_never()).is_none());
        succeeding.store(exits, Ordering::Relaxed);
        let ended = tokio::spawn(response).await;
        let has_come = succeeding.swap(i64::MAX, Ordering::Relaxed) < 0;
        drop(ended);
        // Less than the watchdog's lease.
        let wait = Duration::from_secs(12);
        let freed = client.lock("k").acquire().wait(wait).await;
        assert!(freed.is_ok(), "exit {exits}: {freed:?}");
        if !has_come {
            assert!(exits > 2, "only {exits} exits");
            return;
        }
    }
}

/// Panics when it is told that the span of a request is entered, left or closed, after this many times.
struct PanicsInSpan(Arc<AtomicI64>);

impl PanicsInSpan {
    fn told<S>(&self, span: &Id, context: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let is_of_request = context.metadata(span).map(|span| span.name()) == Some("request");
        if is_of_request && self.0.fetch_sub(1, Ordering::Relaxed) == 0 {
            resume_unwind(Box::new("the subscriber"));
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for PanicsInSpan {
    fn on_enter(&self, span: &Id, context: Context<'_, S>) {
        self.told(span, &context);
    }
    fn on_exit(&self, span: &Id, context: Context<'_, S>) {
        self.told(span, &context);
    }
    fn on_close(&self, span: Id, context: Context<'_, S>) {
        self.told(&span, &context);
    }
}

#[tokio::test]
async fn handler_of_a_task_runs_to_its_end_although_the_span_of_its_request_panics() {
    let succeeding = Arc::new(AtomicI64::new(i64::MAX));
    let panics = PanicsInSpan(Arc::clone(&succeeding));
    let _listening = tracing::subscriber::set_default(tracing_subscriber::registry().with(panics));
    for calls in 0.. {
        let client = Client::in_memory();
        let layer = LockLayer::new(client.clone()).key(|_: &Parts| "k");
        let handler = service_fn(async |_: Request<()>| {
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(Response::new(String::from("done")))
        });
        let service = layer.run_to_completion().layer(handler);
        let mut response = service.oneshot(Request::new(())).boxed();
        // The first poll spawns the task, in this span.
        let span = tracing::info_span!("request");
        assert!(span.in_scope(|| (&mut response).now_or_never()).is_none());
        drop(span);
        succeeding.store(calls, Ordering::Relaxed);
        assert_eq!(response.await.unwrap().status(), 200, "call {calls}");
        assert!(!client.lock("k").is_locked().await.unwrap());
        if succeeding.swap(i64::MAX, Ordering::Relaxed) >= 0 {
            assert!(calls > 5, "only {calls} calls");
            return;
        }
    }
}

/// A log that panics at its first line that contains a text.
#[derive(Clone)]
struct PanicsOnce(&'static str, Arc<AtomicBool>);

impl Write for PanicsOnce {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let is_it = String::from_utf8_lossy(line).contains(self.0);
        assert!(!is_it || self.1.swap(true, Ordering::Relaxed), "the log");
        Ok(line.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn subscriber_that_panics_once_costs_one_request() {
    for line in ["cannot time request bodies", "CORS preflight"] {
        let log = PanicsOnce(line, Arc::default());
        let subscriber = tracing_subscriber::fmt().with_writer(move || log.clone());
        let _listening = tracing::subscriber::set_default(subscriber.finish());
        let client = Client::in_memory();
        let layer = LockLayer::new(client.clone()).key(|_: &Parts| "k");
        let send = || {
            let handler = service_fn(async |_: Request<Full<Bytes>>| {
                Ok::<_, Infallible>(Response::new(String::new()))
            });
            let request = Request::options("/")
                .header("content-length", "1")
                .header("origin", "https://shop.example")
                .header("access-control-request-method", "PUT")
                .body(Full::<Bytes>::from("a"))
                .unwrap();
            tokio::spawn(layer.layer(handler).oneshot(request))
        };
        assert!(send().await.unwrap_err().is_panic(), "{line}");
        for _ in 0..2 {
            assert_eq!(send().await.unwrap().unwrap().status(), 200, "{line}");
        }
    }
}
