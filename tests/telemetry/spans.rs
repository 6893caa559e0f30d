//! The spans and events of one contended acquisition, collected in memory.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, Once};
use std::time::Duration;

use distlock::{Client, MemoryServer};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

#[derive(Clone, Debug, Default)]
pub(super) struct Fields(pub(super) BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

/// A span that has closed, or an event with the key of the span that it happened in.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) name: String,
    pub(super) level: Level,
    pub(super) fields: Fields,
    inside: Option<String>,
}

static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());

struct Collector;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let span = context.span(id).unwrap();
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        values.record(span.extensions_mut().get_mut::<Fields>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let inside = context.event_span(event).and_then(|span| {
            let extensions = span.extensions();
            extensions.get::<Fields>()?.0.get("key").cloned()
        });
        SEEN.lock().unwrap().push(Seen {
            name: fields.0.remove("message").unwrap_or_default(),
            level: *event.metadata().level(),
            fields,
            inside,
        });
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        let fields = span
            .extensions()
            .get::<Fields>()
            .cloned()
            .unwrap_or_default();
        SEEN.lock().unwrap().push(Seen {
            name: span.name().to_owned(),
            level: *span.metadata().level(),
            fields,
            inside: None,
        });
    }
}

/// Collects what the whole process says of `distlock`.
pub(super) fn collect() {
    static COLLECTS: Once = Once::new();
    COLLECTS.call_once(|| {
        let of_distlock = tracing_subscriber::filter::filter_fn(|meta| meta.target() == "distlock");
        let subscriber = tracing_subscriber::registry().with(Collector.with_filter(of_distlock));
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

/// What was said of a key: of all tests of the process, only one uses it.
pub(super) fn seen(key: &str) -> Vec<Seen> {
    let seen = SEEN.lock().unwrap();
    let of_key = |one: &&Seen| {
        one.fields.0.get("key").is_some_and(|of| of == key) || one.inside.as_deref() == Some(key)
    };
    seen.iter().filter(of_key).cloned().collect()
}

/// The events with this message of keys that begin so: of all tests of the process, only one uses them.
pub(super) fn said(message: &str, keys: &str) -> Vec<Seen> {
    let seen = SEEN.lock().unwrap();
    let of_keys = |one: &&Seen| {
        let key = one.fields.0.get("key");
        one.name.starts_with(message) && key.is_some_and(|key| key.starts_with(keys))
    };
    seen.iter().filter(of_keys).cloned().collect()
}

/// Whether this message was logged, with this value of a field.
pub(super) fn has_said(message: &str, field: &str, value: &str) -> bool {
    let seen = SEEN.lock().unwrap();
    let mut said = seen.iter().filter(|one| one.name == message);
    said.any(|one| one.fields.0.get(field).is_some_and(|of| of == value))
}

fn spans(key: &str) -> Vec<BTreeMap<&'static str, String>> {
    let seen = seen(key).into_iter();
    let spans = seen.filter(|one| one.name == "distlock.acquire");
    spans.map(|span| span.fields.0).collect()
}

fn events(key: &str) -> Vec<String> {
    let seen = seen(key).into_iter();
    let events = seen.filter(|one| one.name != "distlock.acquire");
    events.map(|event| event.name).collect()
}

#[tokio::test(start_paused = true)]
async fn contended_acquisition_has_one_span_with_its_events_and_the_time_that_it_waited() {
    collect();
    let (key, client) = ("contended", Client::in_memory());
    let held = client.lock(key).acquire().await.unwrap();
    let waiting = client.lock(key).acquire().wait(Duration::from_secs(5));
    let waiting = tokio::spawn(waiting.into_future());
    tokio::time::sleep(Duration::from_millis(40)).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();

    let spans = spans(key);
    assert_eq!(spans.len(), 2, "{spans:?}");
    let span = &spans[1];
    let client = client.id().to_string();
    for (field, value) in [
        ("kind", "lock"),
        ("key", key),
        ("client", &client),
        ("wait", "5s"),
        ("outcome", "granted"),
        ("waited", "40ms"),
    ] {
        assert_eq!(span.get(field).map(String::as_str), Some(value), "{span:?}");
    }
    assert_eq!(spans[0].get("wait"), None, "it waits without limit");
    assert_eq!(
        events(key),
        [
            "granted",
            "waiting for the key",
            "handed over to the next waiter of this client",
            "released; the server is told",
        ]
    );
    let seen = seen(key);
    let waits = seen.iter().find(|one| one.name == "waiting for the key");
    let waits = waits.unwrap();
    assert_eq!(waits.inside.as_deref(), Some(key));
    assert!(
        waits.fields.0["call_site"].contains("spans.rs"),
        "{waits:?}"
    );
    assert!(seen.iter().all(|one| one.level >= Level::DEBUG), "{seen:?}");
}

/// A reader of the log wants to know which line of code worked without the lock.
#[tokio::test(start_paused = true)]
async fn loss_is_told_with_the_kind_and_the_line_of_the_acquisition() {
    collect();
    let (first, second) = ("lost:1", "lost:2");
    let (client, other) = (Client::in_memory(), MemoryServer::new());
    let told = client.fair_lock(first).acquire().await.unwrap();
    assert!(client.lock(first).force_release().await.unwrap());
    told.lost().await;
    let [client, other] = [(); 2].map(|()| Client::builder().in_memory(&other).unwrap());
    let found = client.fair_lock(second).acquire().await.unwrap();
    assert!(other.lock(second).force_release().await.unwrap());
    assert!(found.release().await.unwrap_err().is_lost());
    for (key, begin) in [
        (first, "hold lost;"),
        (second, "hold found lost by its release;"),
    ] {
        let seen = seen(key);
        let loss = seen.iter().find(|one| one.name.starts_with(begin));
        let Seen { level, fields, .. } = loss.unwrap_or_else(|| panic!("{seen:?}"));
        assert_eq!(*level, Level::WARN);
        assert_eq!(fields.0["kind"], "fair_lock");
        assert!(fields.0["call_site"].contains("spans.rs:"), "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn span_tells_refusals_and_cancellations_and_a_reentry_has_none() {
    collect();
    let (key, client) = ("refused", Client::in_memory());
    let lock = client.lock(key);
    let held = lock.acquire().await.unwrap();
    let again = held.scope(async { lock.acquire().await.unwrap().release().await });
    again.await.unwrap().unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let second = Duration::from_secs(1);
    assert!(lock.acquire().wait(second).await.unwrap_err().is_busy());
    let full = lock.acquire().max_waiters(0).await;
    assert!(full.unwrap_err().is_overloaded());
    let cancelled = tokio::time::timeout(second, lock.acquire().into_future());
    assert!(cancelled.await.is_err());
    let outcomes: Vec<_> = spans(key)
        .iter()
        .map(|span| span["outcome"].clone())
        .collect();
    assert_eq!(
        outcomes,
        ["granted", "busy", "busy", "overloaded", "cancelled"]
    );
    let events = events(key);
    let refused = "the server refused the key; it is attempted again";
    assert!(events.iter().any(|name| name == refused), "{events:?}");
    let not_granted = events.iter().filter(|name| *name == "not granted").count();
    assert_eq!(not_granted, 3);
}

#[tokio::test(start_paused = true)]
async fn close_that_ends_before_its_guards_names_the_ten_oldest_with_their_lines() {
    collect();
    let client = Client::in_memory();
    let mut guards = Vec::new();
    for n in 0..12 {
        let key = format!("after the close {n}");
        guards.push(client.lock(key).acquire().await.unwrap());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    client.close(Duration::from_secs(1)).await.unwrap_err();
    let named = |n: usize| {
        let seen = seen(&format!("after the close {n}"));
        let mut warned = seen.into_iter().filter(|one| one.level == Level::WARN);
        (warned.next(), warned.count())
    };
    for n in 0..10 {
        let (Some(warned), 0) = named(n) else {
            panic!("not named once: {n}");
        };
        assert!(
            warned
                .name
                .starts_with("still held after the client was closed")
        );
        assert!(
            warned.fields.0["call_site"].contains("spans.rs"),
            "{warned:?}"
        );
    }
    assert!(named(10).0.is_none() && named(11).0.is_none());
    drop(guards);
    client.close(Duration::from_secs(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_one_span() {
    collect();
    let client = Client::in_memory();
    let guard = client
        .multi_lock(["several 2", "several 1"])
        .acquire()
        .await;
    guard.unwrap().release().await.unwrap();
    let spans = spans("several 1, several 2");
    assert_eq!(spans.len(), 1);
    assert_eq!(spans[0]["kind"], "multi_lock");
}
