//! The client or quorum for attributes that name none: that of an enclosing [`with_client`], or else the installed one.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::Either;
use pin_project_lite::pin_project;
use tokio::runtime;
use tokio::task::futures::TaskLocalFuture;

use crate::client::Client;
use crate::client::quorum::Quorum;
use crate::client::source::LockSource;
#[cfg(feature = "macros")]
use crate::error::Error;
use crate::sync::RwLock;
use crate::telemetry;

static INSTALLED: RwLock<Clients> = RwLock::new(Clients {
    process: None,
    scoped: Vec::new(),
    last_number: 0,
});

tokio::task_local! {
    static SCOPED: LockSource;
}

/// The clients and quorums that are installed now.
struct Clients {
    /// That of [`Client::install`] or [`Quorum::install`].
    process: Option<LockSource>,
    /// Those whose guards are alive, the newest last.
    scoped: Vec<Scoped>,
    last_number: u64,
}

/// The client or quorum of one [`Installed`].
struct Scoped {
    number: u64,
    /// The runtime that it was installed in; `None` for the whole process.
    runtime: Option<runtime::Id>,
    locks: LockSource,
}

impl Clients {
    /// That of the newest guard for this runtime, or for the whole process.
    fn scoped_to(&self, runtime: Option<runtime::Id>) -> Option<&LockSource> {
        let mut newest = self.scoped.iter().rev();
        let found = newest.find(|scoped| scoped.runtime == runtime);
        found.map(|scoped| &scoped.locks)
    }

    fn of_process(&self) -> Option<&LockSource> {
        self.scoped_to(None).or(self.process.as_ref())
    }

    #[cfg(feature = "macros")]
    fn current(&self) -> Option<&LockSource> {
        // Most programs have no guards, and save the look-up of their runtime.
        if self.scoped.is_empty() {
            return self.process.as_ref();
        }
        let of_runtime = this_runtime().and_then(|runtime| self.scoped_to(Some(runtime)));
        of_runtime.or_else(|| self.of_process())
    }
}

fn this_runtime() -> Option<runtime::Id> {
    runtime::Handle::try_current().ok().map(|here| here.id())
}

impl Client {
    /// Makes this client the one that attributes use if they do not name a client.
    ///
    /// It applies to the whole process from here on. Installing another client replaces it, which is logged as a warning. A
    /// client of [`install_scoped`](Client::install_scoped) or of [`with_client`](crate::with_client) takes precedence where it
    /// applies.
    ///
    /// Use it once, at the start of a program. Tests share one process: give each its own client with
    /// [`install_scoped`](Client::install_scoped).
    ///
    /// # Examples
    /// ```
    /// distlock::Client::in_memory().install();
    /// ```
    pub fn install(&self) {
        install(self.into());
    }

    /// Makes this client the one that attributes use if they do not name a client, until the guard is dropped. Then the
    /// client that was used before is used again.
    ///
    /// Inside a tokio runtime it applies to that runtime: to all its tasks, also those of `tokio::spawn`, a `JoinSet` and
    /// `axum::serve`, and to the threads of `spawn_blocking`. A `#[tokio::test]` has a runtime of its own, so tests that run
    /// side by side do not disturb each other. Outside of a runtime it applies to the whole process.
    ///
    /// It takes precedence over a client of [`install`](Client::install), even one that is installed later. A
    /// [`with_client`](crate::with_client) takes precedence over both. If several guards are alive, the newest applies, in
    /// whatever order they are dropped. A guard that replaces the client of another guard of the same runtime, or that replaces
    /// the client of the process, is logged as a warning.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// # #[cfg(feature = "macros")] {
    /// use distlock::{Client, Error, distributed_lock};
    ///
    /// #[distributed_lock(key = "order:<id>")]
    /// async fn pay(id: u64) -> Result<&'static str, Error> {
    ///     Ok("paid")
    /// }
    ///
    /// let installed = Client::in_memory().install_scoped();
    /// assert_eq!(tokio::spawn(pay(42)).await.unwrap()?, "paid");
    /// drop(installed);
    /// assert!(matches!(pay(42).await, Err(Error::NoClient)));
    /// # }
    /// # Ok(()) }
    /// ```
    pub fn install_scoped(&self) -> Installed {
        install_scoped(self.into())
    }
}

impl Quorum {
    /// Makes this quorum the one that attributes use if they name neither a client nor a quorum, as [`Client::install`] does with a
    /// client. It replaces an installed client, and a client that is installed later replaces it.
    ///
    /// # Examples
    /// ```
    /// use distlock::{Client, Quorum};
    ///
    /// Quorum::new([Client::in_memory(), Client::in_memory(), Client::in_memory()]).install();
    /// ```
    pub fn install(&self) {
        install(self.into());
    }

    /// Makes this quorum the one that attributes use if they name neither a client nor a quorum, until the guard is dropped; see
    /// [`Client::install_scoped`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// # #[cfg(feature = "macros")] {
    /// use distlock::{Client, Error, Quorum, distributed_lock};
    ///
    /// #[distributed_lock(key = "order:<id>")]
    /// async fn pay(id: u64) -> Result<&'static str, Error> {
    ///     Ok("paid")
    /// }
    ///
    /// let quorum = Quorum::new([Client::in_memory(), Client::in_memory(), Client::in_memory()]);
    /// let _installed = quorum.install_scoped();
    /// assert_eq!(pay(42).await?, "paid");
    /// # }
    /// # Ok(()) }
    /// ```
    pub fn install_scoped(&self) -> Installed {
        install_scoped(self.into())
    }
}

fn install(locks: LockSource) {
    let former = INSTALLED.write().process.replace(locks.clone());
    // Outside of the lock: dropping the last handle of a client ends its tasks.
    log_replacement(former, &locks);
}

fn install_scoped(locks: LockSource) -> Installed {
    let runtime = this_runtime();
    let mut clients = INSTALLED.write();
    let former = match runtime {
        Some(_) => clients.scoped_to(runtime),
        None => clients.of_process(),
    };
    let former = former.cloned();
    clients.last_number += 1;
    let number = clients.last_number;
    clients.scoped.push(Scoped {
        number,
        runtime,
        locks: locks.clone(),
    });
    // Before the warning: its subscriber is foreign code, and may ask for the installed client.
    drop(clients);
    // Before the warning as well: its panic ends the installation.
    let installed = Installed { number };
    log_replacement(former, &locks);
    installed
}

fn log_replacement(former: Option<LockSource>, locks: &LockSource) {
    let Some(former) = former else {
        return;
    };
    let former = former.client_ids();
    let client = locks.client_ids();
    if former != client {
        telemetry::installed_client_replaced(&former, &client);
    }
}

/// Keeps a client or a quorum installed until it is dropped; made by [`Client::install_scoped`] and [`Quorum::install_scoped`].
///
/// It may be dropped anywhere, also outside of the runtime. It never blocks.
///
/// # Examples
/// See [`Client::install_scoped`].
#[must_use = "dropping it takes the client back at once; bind it to a variable, or use `install`"]
pub struct Installed {
    number: u64,
}

impl Drop for Installed {
    fn drop(&mut self) {
        let mut clients = INSTALLED.write();
        let own = |scoped: &Scoped| scoped.number == self.number;
        let at = clients.scoped.iter().position(own);
        let taken_back = at.map(|at| clients.scoped.remove(at));
        drop(clients);
        // Outside of the lock: dropping the last handle of a client ends its tasks.
        drop(taken_back);
    }
}

impl fmt::Debug for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installed").finish_non_exhaustive()
    }
}

/// The client or quorum of the enclosing [`with_client`].
fn scoped() -> Option<LockSource> {
    SCOPED.try_with(LockSource::clone).ok()
}

/// The client or quorum for attributes that name none: the scoped one, or else the installed one.
#[cfg(feature = "macros")]
pub(crate) fn current() -> Result<LockSource, Error> {
    scoped()
        .or_else(|| INSTALLED.read().current().cloned())
        .ok_or(Error::NoClient)
}

/// Runs a future in which attributes use a client, or a [`Quorum`], instead of the installed one.
///
/// It is meant for tests. Tasks that the future spawns use the installed client again, unless they
/// [`inherit`](crate::inherit). [`Client::install_scoped`] reaches all tasks and threads of a runtime.
///
/// A server handles requests in other tasks. They get the client from the layer `ClientLayer` of `distlock-tower`.
///
/// # Cancel safety
/// Dropping the future drops `future`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let client = distlock::Client::in_memory();
/// let answer = distlock::with_client(&client, async { 42 }).await;
/// assert_eq!(answer, 42);
/// # }
/// ```
pub fn with_client<F: Future>(client: impl Into<LockSource>, future: F) -> WithClient<F> {
    WithClient {
        scoped: SCOPED.scope(client.into(), future),
    }
}

pin_project! {
    /// A future in which attributes use another client; made by [`with_client`].
    ///
    /// # Cancel safety
    /// Dropping it drops the inner future, with the same client.
    ///
    /// # Examples
    /// See [`with_client`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct WithClient<F> {
        #[pin]
        scoped: TaskLocalFuture<LockSource, F>,
    }
}

impl<F: Future> Future for WithClient<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().scoped.poll(cx)
    }
}

impl<F> fmt::Debug for WithClient<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithClient").finish_non_exhaustive()
    }
}

/// A future that runs with a client: that of the [`with_client`] around the call that made the future.
///
/// It is boxed only inside a `with_client`, because tokio's future cannot be moved. Code without a `with_client`, which
/// is meant for tests, has no such box.
pub(crate) type Carried<F> = Either<Pin<Box<TaskLocalFuture<LockSource, F>>>, F>;

/// Carries the client of the enclosing [`with_client`] over to `future`.
pub(crate) fn carry<F: Future>(future: F) -> Carried<F> {
    match scoped() {
        // Boxed, so that a future without such a client does not grow.
        Some(locks) => Either::Left(Box::pin(SCOPED.scope(locks, future))),
        None => Either::Right(future),
    }
}

#[cfg(test)]
#[cfg(feature = "macros")]
#[allow(clippy::disallowed_types, reason = "a subscriber locks its log")]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// The log of this thread.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Log {
        /// The lines since the last call.
        fn take(&self) -> Vec<String> {
            let text = std::mem::take(&mut *self.0.lock().unwrap());
            let text = String::from_utf8(text).unwrap();
            text.lines().map(str::to_owned).collect()
        }
    }

    // One test, because the clients of the process are those of all tests.
    #[test]
    fn each_dropped_guard_puts_the_former_client_back_and_each_replacement_is_logged() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone());
        let _listening = tracing::subscriber::set_default(subscriber.finish());
        let [first, second, third] = [(); 3].map(|()| Client::in_memory());
        let id = || current().ok().map(|locks| locks.client_ids());
        let [of_first, of_second, of_third] =
            [&first, &second, &third].map(|client| client.id().to_string());
        assert_eq!(id(), None);

        first.install();
        first.install();
        assert_eq!((id(), log.take()), (Some(of_first.clone()), Vec::new()));

        let guard = second.install_scoped();
        assert_eq!(id(), Some(of_second.clone()));
        let told = log.take();
        assert!(told.len() == 1 && told[0].contains("WARN"), "{told:?}");
        let names = [&of_first, &of_second];
        assert!(names.iter().all(|id| told[0].contains(*id)), "{told:?}");

        // The inner guard outlives the outer one.
        let inner = third.install_scoped();
        drop(guard);
        assert_eq!((id(), log.take().len()), (Some(of_third.clone()), 1));
        drop(inner);
        assert_eq!(id(), Some(of_first.clone()));

        second.install();
        assert_eq!((id(), log.take().len()), (Some(of_second.clone()), 1));

        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let _guard = third.install_scoped();
            assert_eq!(id(), Some(of_third.clone()));
            let elsewhere = std::thread::spawn(|| current().unwrap().client_ids());
            assert_eq!(elsewhere.join().unwrap(), of_second);
        });
        assert_eq!((id(), log.take()), (Some(of_second.clone()), Vec::new()));

        let quorum = Quorum::new([first, third]);
        let guard = quorum.install_scoped();
        let both = format!("{of_first}, {of_third}");
        assert_eq!(id(), Some(both.clone()));
        let told = log.take();
        assert!(told.len() == 1 && told[0].contains(&both), "{told:?}");
        quorum.install();
        drop(guard);
        assert_eq!((id(), log.take().len()), (Some(both), 1));
        assert!(INSTALLED.read().scoped.is_empty());
    }
}
