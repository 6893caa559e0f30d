//! Which client counts where none is named: the one of a [`with_client`] around the code, else the installed one.

use std::pin::Pin;

use futures_util::future::Either;
use tokio::task::futures::TaskLocalFuture;

use crate::client::Client;
#[cfg(feature = "macros")]
use crate::error::Error;

static INSTALLED: parking_lot::RwLock<Option<Client>> = parking_lot::RwLock::new(None);

tokio::task_local! {
    static SCOPED: Client;
}

impl Client {
    /// Makes this the process's client for attributes that name none; the last one installed counts.
    ///
    /// # Examples
    /// ```
    /// distlock::Client::in_memory().install();
    /// ```
    pub fn install(&self) {
        *INSTALLED.write() = Some(self.clone());
    }
}

/// The one of a [`with_client`].
fn scoped() -> Option<Client> {
    SCOPED.try_with(Client::clone).ok()
}

/// The client for attributes that name none: the scoped one, else the installed one.
#[cfg(feature = "macros")]
pub(crate) fn current() -> Result<Client, Error> {
    scoped()
        .or_else(|| INSTALLED.read().clone())
        .ok_or(Error::NoClient)
}

/// Runs a future with another client for the attributes in it than the installed one. For tests.
///
/// Tasks spawned within it see the installed client again, but for those that [`inherit`](crate::inherit).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let client = distlock::Client::in_memory();
/// let answer = distlock::with_client(&client, async { 42 }).await;
/// assert_eq!(answer, 42);
/// # }
/// ```
pub fn with_client<F: Future>(
    client: &Client,
    future: F,
) -> impl Future<Output = F::Output> + use<F> {
    SCOPED.scope(client.clone(), future)
}

/// A future that runs in the same [`with_client`] as the call that made it.
///
/// Boxed where there is one: tokio's may not be moved, and only tests have it.
pub(crate) type Carried<F> = Either<Pin<Box<TaskLocalFuture<Client, F>>>, F>;

/// Takes the client of a [`with_client`] along.
pub(crate) fn carry<F: Future>(future: F) -> Carried<F> {
    match scoped() {
        Some(client) => Either::Left(Box::pin(SCOPED.scope(client, future))),
        None => Either::Right(future),
    }
}
