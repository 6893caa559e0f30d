//! The addresses of the console, and the headers of its answers.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{OriginalUri, Path, Query, Request, State};
use axum::middleware::map_response;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use distlock::{Error, Primitive, visible};
use futures_core::Stream;
use futures_util::future::{BoxFuture, Either, Shared, select};
use futures_util::stream::unfold;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use super::looks::Looks;
use super::release::{self, Refusal, Releases, refusal};
use super::view::{Detail, Shown, Trouble, View};

const PAGE: &str = include_str!("assets/index.html");
const SCRIPTS: [(&str, &str); 6] = [
    ("/names.js", include_str!("assets/names.js")),
    ("/tables.js", include_str!("assets/tables.js")),
    ("/list.js", include_str!("assets/list.js")),
    ("/key.js", include_str!("assets/key.js")),
    ("/own.js", include_str!("assets/own.js")),
    ("/console.js", include_str!("assets/console.js")),
];
const STYLE: &str = include_str!("assets/console.css");
const ICON: &str = include_str!("assets/icon.svg");

const HTML: &str = "text/html; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// The page loads its own files and nothing else, and no text becomes HTML. The digest is that of the script in the page. A
/// browser that refuses that script logs the digest that it expects.
const POLICY: &str = "default-src 'none'; script-src 'self' 'sha256-MSZ65DEciMWjHMtlPjhYxpTv3MNh2DNyGw/tPADhsXE='; \
    style-src 'self'; connect-src 'self'; img-src 'self'; \
    base-uri 'self'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// On every answer.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    // A proxy that collects the answer would hold back the events.
    (HeaderName::from_static("x-accel-buffering"), "no"),
];

/// How long a stream of events lasts, so that a server which shuts down need not wait for a page that stays open.
const STREAM: Duration = Duration::from_secs(5);

/// How often a stream looks whether the client is closed, and then ends.
const CLOSED: Duration = Duration::from_millis(100);

/// How long a page waits until it opens the next stream.
const RETRY: Duration = Duration::from_millis(250);

/// The same if the client is closed: each stream ends after one event then.
const RETRY_CLOSED: Duration = Duration::from_secs(3);

/// The largest body of a request: a key may be 1 MiB long, is there twice, and JSON escapes a byte by six.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// How many streams of events are open at once.
const MOST_STREAMS: usize = 100;

/// Completes when the server shuts down.
pub(super) type Shutdown = Shared<BoxFuture<'static, ()>>;

struct Console {
    looks: Arc<Looks>,
    releases: Releases,
    environment: Option<String>,
    streams: Arc<Semaphore>,
    shutdown: Shutdown,
}

impl Console {
    /// Refuses a key outside of the console's pattern.
    fn check_key(&self, key: &str) -> Result<(), Refusal> {
        if self.looks.covers(key) {
            return Ok(());
        }
        let pattern = self.looks.pattern();
        let text =
            format!("the key {key:?} does not match the pattern {pattern:?} of this console");
        Err(Refusal::new(StatusCode::NOT_FOUND, text))
    }

    fn shown(&self) -> Shown<'_> {
        Shown {
            now: self.looks.now(),
            server: self.looks.client().servers(),
            prefix: self.looks.client().key_prefix(),
            environment: self.environment.as_deref(),
            pattern: self.looks.pattern(),
            max_keys: self.looks.max_keys(),
            may_force_release: self.releases.are_allowed,
            is_closed: self.is_closed(),
        }
    }

    fn is_closed(&self) -> bool {
        self.looks.client().is_closed()
    }

    /// The view that a stream shows after an earlier one; `None` at its end, which is at `ends`, when the server shuts down, or when
    /// the client is closed. Also the stream of a closed client shows one view.
    async fn next_view(&self, earlier: Option<&View>, ends: Instant) -> Option<Arc<View>> {
        let view = async {
            match earlier {
                None => self.looks.current().await,
                Some(earlier) => self.looks.newer(earlier.look).await,
            }
        };
        let is_closed = || earlier.is_some() && self.is_closed();
        let end = async {
            while !is_closed() && Instant::now() < ends {
                sleep_until(ends.min(Instant::now() + CLOSED)).await;
            }
        };
        let end = pin!(end);
        match select(pin!(view), select(end, self.shutdown.clone())).await {
            Either::Left((view, _)) => Some(view),
            Either::Right(_) => None,
        }
    }
}

pub(super) fn router<S: Clone + Send + Sync + 'static>(
    looks: Looks,
    releases: Releases,
    environment: Option<String>,
    shutdown: Shutdown,
) -> Router<S> {
    let console = Console {
        looks: Arc::new(looks),
        releases,
        environment,
        streams: Arc::new(Semaphore::new(MOST_STREAMS)),
        shutdown,
    };
    Router::new()
        .route("/", get(page))
        .merge(scripts())
        .route("/console.css", file(CSS, STYLE))
        .route("/icon.svg", file(SVG, ICON))
        .route("/api/locks", get(locks))
        .route("/api/locks/{*key}", get(lock_of_path))
        .route("/api/lock", get(lock_of_query))
        .route("/api/events", get(events))
        .route("/api/force-release", post(release))
        .layer(map_response(with_headers))
        .with_state(Arc::new(console))
}

fn scripts<S: Clone + Send + Sync + 'static>() -> Router<S> {
    SCRIPTS
        .iter()
        .fold(Router::new(), |router, (path, script)| {
            router.route(path, file(JAVASCRIPT, script))
        })
}

fn file<S: Clone + Send + Sync + 'static>(
    content_type: &'static str,
    content: &'static str,
) -> MethodRouter<S> {
    get(move || std::future::ready(([(CONTENT_TYPE, content_type)], content)))
}

async fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// The addresses in the page are relative. Where the address of the page has no slash at its end, they begin with its last
/// part. A proxy may have taken parts of the address away, so the page then corrects it by the address that the browser has.
async fn page(OriginalUri(uri): OriginalUri) -> Response {
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    let base = if last.is_empty() {
        String::from("./")
    } else {
        // The colon keeps its meaning out: `a:b/` would be an address with the scheme `a`.
        format!("./{}/", escaped(last))
    };
    let page = PAGE.replace("{base}", &base);
    ([(CONTENT_TYPE, HTML)], page).into_response()
}

/// A text as the value of an attribute in HTML.
fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '&' => String::from("&amp;"),
        '"' => String::from("&quot;"),
        '\'' => String::from("&#39;"),
        '<' => String::from("&lt;"),
        '>' => String::from("&gt;"),
        c => String::from(c),
    };
    text.chars().map(escape).collect()
}

fn refused(Refusal { status, text }: Refusal) -> Response {
    (status, Json(json!({ "error": text }))).into_response()
}

async fn locks(State(console): State<Arc<Console>>) -> Response {
    let view = console.looks.current().await;
    Json(view.update(None, console.shown())).into_response()
}

/// The path in front of the console may have captures as well, which come first.
async fn lock_of_path(
    State(console): State<Arc<Console>>,
    Path(captures): Path<Vec<(String, String)>>,
) -> Response {
    let key = captures.into_iter().next_back();
    lock(&console, key.map(|(_, key)| key).unwrap_or_default()).await
}

#[derive(Deserialize)]
struct KeyQuery {
    key: String,
}

/// In a path, clients and proxies take `.` and `..` for folders, and some proxies refuse a slash as `%2F`.
async fn lock_of_query(
    State(console): State<Arc<Console>>,
    query: Result<Query<KeyQuery>, QueryRejection>,
) -> Response {
    match query {
        Ok(Query(KeyQuery { key })) => lock(&console, key).await,
        Err(error) => refused(Refusal::new(error.status(), error.body_text())),
    }
}

async fn lock(console: &Console, key: String) -> Response {
    if let Err(refusal) = console.check_key(&key) {
        return refused(refusal);
    }
    let view = console.looks.current().await;
    let mut trouble = view.trouble.clone();
    let mut lock = view.locks.get(&key).cloned();
    let mut has_other_data = false;
    if lock.is_none() {
        match console.looks.client().inspect(key.as_str()).await {
            Ok(report) => {
                has_other_data = report.primitive == Primitive::OtherData;
                // Otherwise the look has gone to this key, and the next one will. It may leave out a number that nobody uses.
                let is_unused = report.primitive == Primitive::Number;
                let is_missing = view.is_cut || trouble.is_some() || is_unused;
                // The last look may have failed elsewhere.
                trouble = None;
                if is_missing {
                    let shown = console.looks.shown(report);
                    lock = shown.filter(|lock| is_lock(&lock.primitive));
                }
            }
            Err(error @ Error::InvalidKey { .. }) => return refused(refusal(&error)),
            Err(error) => trouble = Some(Trouble::new(&error)),
        }
    }
    let (past, waiting) = console.looks.remembered(&key);
    let own = console.looks.own(&key, &view);
    let detail = Detail {
        now: console.looks.now(),
        key: &key,
        shown: visible(&key).into_owned(),
        lock: lock.as_deref(),
        has_other_data,
        past,
        waiting,
        own_holds: own.holds,
        own_hold_total: own.hold_total,
        own_waits: own.waits,
        own_wait_total: own.wait_total,
        is_closed: console.is_closed(),
        trouble,
        may_force_release: console.releases.are_allowed,
    };
    Json(detail).into_response()
}

fn is_lock(primitive: &str) -> bool {
    !matches!(primitive, "nothing" | "other_data")
}

async fn events(
    State(console): State<Arc<Console>>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Response> {
    let Ok(open) = Arc::clone(&console.streams).try_acquire_owned() else {
        let text = format!("{MOST_STREAMS} pages are open already; ask for api/locks");
        return Err(refused(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text)));
    };
    let ends = Instant::now() + STREAM;
    let stream = unfold(
        // The permit goes along, and is free again when the stream ends.
        (None, open),
        move |(earlier, open): (Option<Arc<View>>, _)| {
            let console = Arc::clone(&console);
            async move {
                let view = console.next_view(earlier.as_deref(), ends).await?;
                let shown = console.shown();
                let retry = if shown.is_closed { RETRY_CLOSED } else { RETRY };
                let update = view.update(earlier.as_deref(), shown);
                let event = Event::default().event("look").retry(retry);
                let event = event.json_data(&update).unwrap_or_default();
                Some((Ok(event), (Some(view), open)))
            }
        },
    );
    Ok(Sse::new(stream))
}

async fn release(State(console): State<Arc<Console>>, request: Request) -> Response {
    match released(&console, request).await {
        Ok(released) => Json(json!({ "released": released })).into_response(),
        Err(refusal) => refused(refusal),
    }
}

async fn released(console: &Console, request: Request) -> Result<bool, Refusal> {
    let (parts, body): (_, Body) = request.into_parts();
    // Before the body is read, which may be large.
    console.releases.check_sender(&parts)?;
    let body = to_bytes(body, MAX_BODY).await.map_err(|error| {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            format!("the body was not read: {error}"),
        )
    })?;
    let request = release::Request::read(&body)?;
    console.check_key(&request.key)?;
    let user = console.releases.user(&parts);
    release::release(Arc::clone(&console.looks), request, user).await
}
