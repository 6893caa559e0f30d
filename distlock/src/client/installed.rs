//! The client for attributes that name none: the client of an enclosing [`with_client`], or else the installed one.

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
    /// Makes this client the one that attributes use if they do not name a client.
    ///
    /// It applies to the whole process. Installing another client replaces it.
    ///
    /// # Examples
    /// ```
    /// distlock::Client::in_memory().install();
    /// ```
    pub fn install(&self) {
        *INSTALLED.write() = Some(self.clone());
    }
}

/// The client of the enclosing [`with_client`].
fn scoped() -> Option<Client> {
    SCOPED.try_with(Client::clone).ok()
}

/// The client for attributes that name none: the scoped one, or else the installed one.
#[cfg(feature = "macros")]
pub(crate) fn current() -> Result<Client, Error> {
    scoped()
        .or_else(|| INSTALLED.read().clone())
        .ok_or(Error::NoClient)
}

/// Runs a future in which attributes use `client` instead of the installed one.
///
/// It is meant for tests. Tasks that the future spawns use the installed client again, unless they
/// [`inherit`](crate::inherit).
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
pub fn with_client<F: Future>(
    client: &Client,
    future: F,
) -> impl Future<Output = F::Output> + use<F> {
    SCOPED.scope(client.clone(), future)
}

/// A future that runs with a client: that of the [`with_client`] around the call that made the future.
///
/// It is boxed only inside a `with_client`, because tokio's future cannot be moved. Code without a `with_client`, which
/// is meant for tests, has no such box.
pub(crate) type Carried<F> = Either<Pin<Box<TaskLocalFuture<Client, F>>>, F>;

/// Carries the client of the enclosing [`with_client`] over to `future`.
pub(crate) fn carry<F: Future>(future: F) -> Carried<F> {
    match scoped() {
        Some(client) => Either::Left(Box::pin(SCOPED.scope(client, future))),
        None => Either::Right(future),
    }
}
