//! A page on which people see the locks: who holds what, since when, and who waits.

mod clock;
mod history;
mod lock;
mod looks;
mod own;
mod problems;
mod release;
mod router;
mod senders;
mod view;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use distlock::Client;
use futures_util::FutureExt as _;
use futures_util::future::pending;
use http::request::Parts;

use self::looks::Looks;
use self::release::{Releases, UserFn};
use self::router::Shutdown;
use self::senders::Senders;

/// How many locks a look finds at most by default.
const DEFAULT_MAX_KEYS: u32 = 10_000;

/// Creates a console for the lock server of `client`: a page and a JSON interface, as an axum router.
///
/// The page shows all locks under the client's prefix, and the semaphores and latches in use, of this crate and of Redisson, each
/// with its holder, its lease and its waiters; and what `client` itself holds and waits for, with the lines of the code. Possible deadlocks and lost locks
/// come first. It is updated live, and keeps the history of each key as long as the program runs. Mount the router behind
/// the authentication of your program, because everybody who can read it sees the names of all keys and of all clients.
///
/// See [`Console`] for the addresses, and for what a look costs.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use axum::Router;
/// use axum::body::{Body, to_bytes};
/// use distlock::Client;
/// use http::Request;
/// use tower::ServiceExt;
///
/// let client = Client::in_memory();
/// let console = Router::from(distlock_tower::console(client.clone()));
/// let app: Router = Router::new().nest_service("/locks", console);
///
/// let _guard = client.lock("order:42").acquire().await?;
/// let locks = app.oneshot(Request::get("/locks/api/locks").body(Body::empty())?).await?;
/// let locks = to_bytes(locks.into_body(), 10_000).await?;
/// assert!(String::from_utf8_lossy(&locks).contains("order:42"));
/// # Ok(()) }
/// ```
pub fn console(client: Client) -> Console {
    Console {
        client,
        pattern: String::from("*"),
        environment: None,
        max_keys: DEFAULT_MAX_KEYS,
        all_numbers: false,
        may_release: false,
        user: None,
        senders: Senders::default(),
        shutdown: pending().boxed().shared(),
    }
}

/// The settings of a console; made by [`console`], and turned into an [`axum::Router`] by `Router::from`.
///
/// # Addresses
/// They are relative to where the router is mounted. The page works under any prefix. With axum's `nest_service("/locks", ..)` the
/// page is at `/locks` and at `/locks/`. With `nest` it is at `/locks` alone: axum answers `/locks/` with 404, whatever the nested
/// router has.
///
/// | request | answer |
/// | --- | --- |
/// | `GET /` | the page |
/// | `GET /api/locks` | all locks as JSON, and what this client holds and waits for |
/// | `GET /api/lock?key={key}` | one lock, with its recent history, and this client's holds and waits of it |
/// | `GET /api/locks/{key}` | the same. Clients and proxies may change a key with `.`, `..` or a slash in the path |
/// | `GET /api/events` | server-sent events: one for each look, with the locks that have changed |
/// | `POST /api/force-release` | frees a lock, a semaphore or a latch, if [`allow_force_release`](Console::allow_force_release) is set |
///
/// Times in the JSON are milliseconds since 1970, by the clock of this machine; each answer has this clock's `now`.
/// Members may be added in any release. A refusal has the member `error`, which is a text.
///
/// # To free a lock without the page
/// The body of `POST /api/force-release` is JSON:
///
/// | member | what it is |
/// | --- | --- |
/// | `key` | the key, without the client's prefix |
/// | `confirmation` | the key once more, as a person has typed it. If it differs from `key`, nothing is freed |
/// | `owners` | optional: the `owner` of each holder that you have seen, as `GET /api/lock` shows it. If another owner holds the key by then, nothing is freed. Without it any holder loses the lock |
/// | `number` | optional: the free permits of the semaphore, or the count of the latch, that you have seen. If the number is another one by then, nothing is deleted |
///
/// ```text
/// curl http://localhost:8080/locks/api/force-release -H 'content-type: application/json' \
///   -d '{ "key": "order:42", "confirmation": "order:42", "owners": ["90ab0d7c-5c1e-4d3b-9f7a-0c6f5e2d1b3a:7"] }'
/// ```
///
/// | answer | what it means |
/// | --- | --- |
/// | 200 `{ "released": true }` | it is freed; with `false` there was nothing to free |
/// | 400 | the body is not this JSON, or the key is no key |
/// | 403 | [force releases are not allowed](Console::allow_force_release), or not from this [origin](Console::trusted_origins) or by this [host](Console::hosts) |
/// | 404 | the key does not match the console's [pattern](Console::pattern) |
/// | 409 | another owner holds the key, the number is another one, or the key has data of another program |
/// | 422 | `confirmation` is not the key |
/// | 502, 503 | the lock server refused, or did not answer. `error` says whether the lock may have been freed |
///
/// # What a look costs
/// The console looks at the server only while somebody watches, at most every 2 s for all watchers together, and
/// rests for at least as long as a look has taken. A look is a [`Client::scan`] with one small script for each key. It
/// stops at [`max_keys`](Console::max_keys) locks, and the page then says that there are more. The guide's page
/// [`least_privilege`](distlock::guide::least_privilege) lists the rights that a look needs. If the user lacks one of them,
/// the console says so and shows the rest.
///
/// # What the history knows
/// The history contains what the console has seen, and is empty when the program starts. A hold that is shorter than the
/// time between two looks may be missing. Nothing is noted while nobody watches, or while the looks fail.
///
/// A hold of this process began at `since` exactly, unless it is a permit of an expirable semaphore, which the server knows only by
/// the permit's id. Such a permit, and a hold of another process, began before its first look: up to 6 s before if
/// `is_since_exact` is `true`, and otherwise at an unknown time. The time is unknown if nobody watched, if the looks before failed or
/// did not go to the key, and if a look takes some seconds. Each hold has ended between `last_seen` and `until`, the
/// looks before and after its end. Both are the same for a lock that this console has freed. Its `end` is `unknown` if its lease would
/// have run out between the looks and more than 6 s lie between them, since the lease may have been renewed.
///
/// # Shutdown
/// A graceful shutdown of a server waits for the streams of events of the pages that are open. A stream ends after 5 s, and at once
/// when the client is closed, or when the future of [`graceful_shutdown`](Console::graceful_shutdown) completes. The page then opens
/// the next one, unless its tab is hidden. At most 100 streams are open at once. Further pages ask every 3 s.
///
/// # Security
/// The console has no authentication of its own. Everyone who reaches the router can read the page, so protect it. The page loads
/// nothing from other hosts, and its `Content-Security-Policy` forbids scripts other than its own. It may not be framed, and no
/// answer may be cached. A request that frees a lock is refused if it comes from another
/// [origin](Console::trusted_origins), or if it calls the program by an unknown [host](Console::hosts).
///
/// # Examples
/// ```
/// # fn main() {
/// use axum::Router;
/// use axum::middleware::{Next, from_fn};
/// use axum::extract::Request;
/// use axum::response::{IntoResponse, Response};
/// use distlock::Client;
/// use http::StatusCode;
///
/// // The authentication of your program:
/// async fn operators_only(request: Request, next: Next) -> Response {
///     match request.headers().get("x-user") {
///         Some(_) => next.run(request).await,
///         None => StatusCode::UNAUTHORIZED.into_response(),
///     }
/// }
///
/// let console = distlock_tower::console(Client::in_memory())
///     .pattern("order:*")
///     .allow_force_release()
///     .hosts(["ops.shop.example"])
///     .user(|request| match request.headers.get("x-user") {
///         Some(user) => String::from_utf8_lossy(user.as_bytes()).into_owned(),
///         None => String::from("nobody"),
///     });
/// let app: Router = Router::new()
///     .nest_service("/locks", Router::from(console).layer(from_fn(operators_only)));
/// # drop(app);
/// # }
/// ```
#[must_use = "a console does nothing until it is turned into a router"]
pub struct Console {
    client: Client,
    pattern: String,
    environment: Option<String>,
    max_keys: u32,
    all_numbers: bool,
    may_release: bool,
    user: Option<UserFn>,
    senders: Senders,
    shutdown: Shutdown,
}

impl Console {
    /// Restricts the console to the keys that match a pattern, in the form of [`Client::scan`]: without the client's prefix.
    /// The default is `"*"`: all keys with the client's prefix.
    ///
    /// Requests for a single other key, also to free it, are answered with 404. A possible deadlock is shown with all of its
    /// keys if one of them matches.
    ///
    /// # Examples
    /// See [`Console`].
    pub fn pattern(mut self, pattern: impl Into<String>) -> Self {
        self.pattern = pattern.into();
        self
    }

    /// Sets the name of the environment, such as `production`. The head of the page and its title show it, with the server and
    /// the client's prefix, so that nobody frees a lock in the wrong one. The default is none.
    ///
    /// # Examples
    /// ```
    /// let console = distlock_tower::console(distlock::Client::in_memory()).environment("production");
    /// # drop(axum::Router::<()>::from(console));
    /// ```
    pub fn environment(mut self, name: impl Into<String>) -> Self {
        self.environment = Some(name.into());
        self
    }

    /// Sets how many locks are shown at most: 10,000 by default. A value of 0 counts as 1.
    ///
    /// A look ends when it has found this many locks, or has gone through ten times as many keys. The page then says that there
    /// are more. To find a lock among the others, use a narrower [`pattern`](Console::pattern).
    ///
    /// # Examples
    /// ```
    /// let console = distlock_tower::console(distlock::Client::in_memory()).max_keys(1_000);
    /// # drop(axum::Router::<()>::from(console));
    /// ```
    pub fn max_keys(mut self, keys: u32) -> Self {
        self.max_keys = keys.max(1);
        self
    }

    /// Lists also the numbers that nothing shows to be a semaphore or a latch. Without this setting they are left out, as by
    /// [`Scan::skip_numbers`](distlock::Scan::skip_numbers): most of them are counters of other programs.
    ///
    /// A semaphore is listed as soon as somebody has a permit or waits for one, and a latch as soon as somebody waits for it. The
    /// page of each number can be opened by its key, with and without this setting.
    ///
    /// # Examples
    /// ```
    /// let console = distlock_tower::console(distlock::Client::in_memory()).pattern("pool:*").all_numbers();
    /// # drop(axum::Router::<()>::from(console));
    /// ```
    pub fn all_numbers(mut self) -> Self {
        self.all_numbers = true;
        self
    }

    /// Lets people free locks on the page, and delete semaphores and latches. Without this setting the console only reads.
    ///
    /// The request names the key twice, since people type it as a confirmation. It is refused if it comes from another
    /// [origin](Console::trusted_origins), where browsers send the user's cookies along, and if it calls the program by a name
    /// other than `localhost`, unless [`hosts`](Console::hosts) has it.
    ///
    /// The page also sends the owners that it showed when the person began to type, as `"owners"`, and the free permits of a
    /// semaphore or the count of a latch, as `"number"`. If another owner holds the key by then, or the number is another one, the
    /// request is refused with 409, and the answer says who or which. The server decides that in the step in which it frees the
    /// key, as [`Client::force_release`](distlock::Client::force_release) says. A request without `"owners"` frees the lock no
    /// matter who holds it.
    ///
    /// Each request that frees a lock is logged as a warning, with the key, its holders, its number and the
    /// [user](Console::user) who sent it, even if its sender has gone before the answer. So is a request after which it is not
    /// known whether the lock was freed, because the lock server did not answer or refused.
    /// [`Lock::force_release`](distlock::Lock::force_release) says what happens to the holder.
    ///
    /// # Examples
    /// See [`Console`].
    pub fn allow_force_release(mut self) -> Self {
        self.may_release = true;
        self
    }

    /// Sets by which names the console may be called to free a lock, in addition to those of the loopback interface (`localhost`,
    /// names below `.localhost`, and addresses such as `127.0.0.1` and `[::1]`), which are always allowed.
    ///
    /// A name is the value of the header `Host`: `ops.shop.example` for each port, or `ops.shop.example:8443`. Behind a proxy it
    /// is the host that the proxy sends. Every other request that frees a lock is refused with 403, and the answer names the
    /// host. Otherwise the page of another site could free locks on a console without authentication, by a name of
    /// that site that points to this machine. Reading is not restricted by the host: only authentication protects it.
    ///
    /// # Examples
    /// See [`Console`].
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.senders.hosts = hosts.into_iter().map(Into::into).collect();
        self
    }

    /// Sets from which origins a request may free a lock, in addition to the origin of the console itself.
    ///
    /// A browser sends the origin of its page, such as `https://ops.shop.example`, in the header `Origin`. The console compares
    /// it with the header `Host`. Both differ behind a proxy that changes `Host`. The answer to a refused request names both
    /// values.
    ///
    /// # Examples
    /// ```
    /// let console = distlock_tower::console(distlock::Client::in_memory())
    ///     .allow_force_release()
    ///     .hosts(["locks.internal"])
    ///     .trusted_origins(["https://ops.shop.example"]);
    /// # drop(axum::Router::<()>::from(console));
    /// ```
    pub fn trusted_origins(mut self, origins: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let origins = origins.into_iter().map(Into::into);
        // People copy an origin from the address of a page.
        self.senders.origins = origins
            .map(|origin: String| origin.trim_end_matches('/').to_owned())
            .collect();
        self
    }

    /// Ends the streams of events of all open pages when the future completes. Give it the signal of the server, so that a page
    /// which is open does not delay the shutdown. Without it the server waits for up to 5 s.
    ///
    /// # Examples
    /// The sender of a `watch` channel tells the console and the server. `stop` is dropped when the program has to end.
    /// ```no_run
    /// # async fn serve(client: distlock::Client) -> std::io::Result<()> {
    /// use axum::Router;
    /// use tokio::sync::watch;
    ///
    /// let (stop, stopped) = watch::channel(());
    /// let told_to_end = |mut stopped: watch::Receiver<()>| async move { drop(stopped.changed().await) };
    ///
    /// let console = distlock_tower::console(client).graceful_shutdown(told_to_end(stopped.clone()));
    /// let app = Router::new().nest_service("/locks", Router::from(console));
    /// let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    /// let server = axum::serve(listener, app).with_graceful_shutdown(told_to_end(stopped));
    /// # drop((stop, server));
    /// # Ok(()) }
    /// ```
    pub fn graceful_shutdown(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.shutdown = signal.boxed().shared();
        self
    }

    /// Sets the function that names the user who sent a request, for the log and the history: for example what your
    /// authentication has put into the extensions of the request. Without it they say `unknown`.
    ///
    /// # Examples
    /// See [`Console`].
    pub fn user(mut self, user: impl Fn(&Parts) -> String + Send + Sync + 'static) -> Self {
        self.user = Some(Arc::new(user));
        self
    }
}

impl<S: Clone + Send + Sync + 'static> From<Console> for Router<S> {
    fn from(console: Console) -> Self {
        let looks = Looks::new(
            console.client,
            console.pattern,
            console.max_keys,
            console.all_numbers,
        );
        let releases = Releases {
            are_allowed: console.may_release,
            user: console.user,
            senders: console.senders,
        };
        router::router(looks, releases, console.environment, console.shutdown)
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("client", &self.client)
            .field("pattern", &self.pattern)
            .field("environment", &self.environment)
            .field("max_keys", &self.max_keys)
            .field("all_numbers", &self.all_numbers)
            .field("may_release", &self.may_release)
            .field("senders", &self.senders)
            .finish_non_exhaustive()
    }
}
