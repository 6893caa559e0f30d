//! A leader among several processes: who holds a fenced lock leads, and its token is the term.

mod campaign;
mod state;
mod vacancy;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use futures_util::FutureExt;

use self::campaign::Campaign;
pub use self::state::LeaderChanges;
use self::state::State;
use crate::backend::reports::HolderReport;
use crate::client::Client;
use crate::error::Error;
use crate::primitives::FencedLock;

/// An election among all processes that name the same key; made by [`Client::leader`].
///
/// [`run`](Leader::run) campaigns. While this process leads, it runs your code with the term, and it drops that code when the lead
/// is lost. Then it campaigns again. An error that lasts ends it: see [`run`](Leader::run).
///
/// This type is a handle: it is cheap to clone, and all clones are the same candidate. Another call of [`Client::leader`] makes
/// another candidate, also in the same process.
///
/// * **A fenced lock.** The leader holds the [`fenced_lock`](Client::fenced_lock) of the key, and the *term* is the fencing
///   token. Each leader has a higher term than all leaders before it. A program in Java takes part with Redisson's
///   `getFencedLock`. Send the term with each write to a store that compares terms: a leader that was paused learns of the loss
///   only when it runs again.
/// * **How long nobody leads.** After [`resign`](Leader::resign), and after a body that ends, the next candidate leads within some
///   round trips and a short pause. After a crash the lease must end first: 30 s, or the [`watchdog_timeout`](crate::Builder::watchdog_timeout).
/// * **Many candidates.** There is no queue: any candidate may be next. A candidate listens for a message. After the message it
///   pauses for a random time before it asks the server: up to 0.25 ms for each of the other candidates, and at most a second. A
///   thousand replicas therefore do not ask at the same moment. They are counted if the user has the right
///   `+pubsub|numsub`, or `+pubsub|shardnumsub` with sharded messages. Otherwise a candidate assumes a few.
/// * **No longest lead.** A leader leads for as long as its lease is renewed. The client's [`max_hold`](crate::Builder::max_hold)
///   does not apply. A body that may hang needs a timeout.
/// * **Outages.** While the server does not answer, nobody can be elected. Candidates keep asking, with growing pauses. The
///   leader leads until its lease ends.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use std::time::Duration;
/// use distlock::Client;
///
/// let client = Client::in_memory();
/// let leader = client.leader("invoices");
/// let campaign = tokio::spawn(leader.run(|term| async move {
///     loop {
///         println!("leading in term {term}"); // the leader's work
///         tokio::time::sleep(Duration::from_millis(10)).await;
///     }
/// }));
///
/// leader.elected().await;
/// assert!(leader.is_leader());
///
/// // At the end of the process, for example on SIGTERM: the next one leads at once.
/// leader.resign().await;
/// assert!(!leader.is_leader());
/// let ended: Option<()> = campaign.await.unwrap()?;
/// assert!(ended.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a leader does nothing until it campaigns: call `.run(..)` and await it"]
pub struct Leader {
    client: Client,
    lock: FencedLock,
    state: Arc<State>,
}

impl Client {
    /// Returns a candidate for the [leader](Leader) of all processes that name this key.
    ///
    /// The leader holds the [fenced lock](Client::fenced_lock) of the key. With a key that is empty or too long,
    /// [`run`](Leader::run) and [`who`](Leader::who) fail with [`Error::InvalidKey`].
    ///
    /// # Examples
    /// See [`Leader`].
    pub fn leader(&self, key: impl Into<String>) -> Leader {
        Leader {
            client: self.clone(),
            lock: self.fenced_lock(key),
            state: Arc::default(),
        }
    }
}

impl Leader {
    /// Returns the key, as it was written: without the client's prefix, even if it is invalid.
    ///
    /// # Examples
    /// ```
    /// let leader = distlock::Client::in_memory().leader("invoices");
    /// assert_eq!(leader.key(), "invoices");
    /// ```
    pub fn key(&self) -> &str {
        self.lock.key()
    }

    /// Campaigns, and runs `body` while this process leads. `body` gets the term.
    ///
    /// * When the lead is lost, the body is dropped at its next poll, and the campaign begins again. `body` is called once for each
    ///   term.
    /// * When a body ends by itself, the process stops leading, and the future completes with the value of the body.
    /// * After [`resign`](Leader::resign) the future completes with `None`. The body was dropped if it ran.
    ///
    /// The body runs inside the critical section of the lock, where [`distlock::current`](crate::current) returns the hold. Tasks
    /// that the body spawns continue after a loss unless they check that hold.
    ///
    /// The future does nothing unless it is polled. Spawn it, or put it into the `select!` that ends the program. If your code
    /// only asks [`is_leader`](Leader::is_leader), run the body `|_| std::future::pending::<()>()`.
    ///
    /// # Errors
    /// * [`Error::Closed`]: the client is [closed](Client::close).
    /// * [`Error::Lost`]: the body had ended, and then the lead was found to be lost. Another leader may have begun before the end.
    /// * [`Error::InvalidKey`], [`Error::WrongType`], [`Error::Denied`] and the other errors that
    ///   [last](Error::is_permanent).
    ///
    /// If the server does not answer, there is no error, and the campaign continues. If the server refuses the login of a new
    /// connection, for example while a password changes, the campaign continues for
    /// [`unavailable_after`](crate::Builder::unavailable_after). It fails with [`Error::Denied`] if the server still refuses the login
    /// then. An error that ends the campaign is also logged as a warning, unless the client is closed.
    ///
    /// # Cancel safety
    /// Dropping the future ends the campaign: it drops the body, and then releases the lock in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let leader = client.leader("migrate");
    /// let first = leader.run(|term| async move { term }).await?;
    /// let second = leader.run(|term| async move { term }).await?;
    /// assert!(first < second);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn run<T, F, B>(
        &self,
        body: B,
    ) -> impl Future<Output = Result<Option<T>, Error>> + use<T, F, B>
    where
        B: FnMut(u64) -> F,
        F: Future<Output = T>,
    {
        Campaign::new(self.lock.clone(), Arc::clone(&self.state)).run(body)
    }

    /// Returns whether this candidate leads. The method compares clocks, without I/O. It returns `false` as soon as the lease has
    /// ended, even if nothing was polled meanwhile.
    ///
    /// # Examples
    /// See [`Leader`].
    pub fn is_leader(&self) -> bool {
        self.term().is_some()
    }

    /// Returns the term of this candidate while it leads: the fencing token of the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let leader = client.leader("invoices");
    /// assert_eq!(leader.term(), None);
    /// let same = leader.run(|term| {
    ///     let leader = leader.clone();
    ///     async move { leader.term() == Some(term) }
    /// });
    /// assert_eq!(same.await?, Some(true));
    /// # Ok(()) }
    /// ```
    pub fn term(&self) -> Option<u64> {
        self.state.term()
    }

    /// Waits until this candidate leads, and returns its term. A [`run`](Leader::run) has to be under way.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// # Examples
    /// See [`Leader`].
    pub async fn elected(&self) -> u64 {
        self.state.elected().await
    }

    /// Returns the changes of this candidate's lead, as a stream: first the present term, or `None` if it does not lead, and then
    /// each change. Changes that follow each other quickly may show as one.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use futures_util::StreamExt;
    ///
    /// let client = distlock::Client::in_memory();
    /// let leader = client.leader("invoices");
    /// let mut changes = leader.changes();
    /// assert_eq!(changes.next().await, Some(None));
    ///
    /// let campaign = tokio::spawn(leader.run(|_| std::future::pending::<()>()));
    /// assert!(changes.next().await.flatten().is_some());
    /// leader.resign().await;
    /// assert_eq!(changes.next().await, Some(None));
    /// # Ok(()) }
    /// ```
    pub fn changes(&self) -> LeaderChanges {
        self.state.changes()
    }

    /// Stops leading and campaigning: each [`run`](Leader::run) that is under way drops its body, releases the lock, and completes
    /// with `None`. The next candidate leads within some round trips. Completes when this is done.
    ///
    /// Use it before a process ends, as in a rolling deploy. A later `run` campaigns again. If a body must not be dropped in the
    /// middle of its work, let it return instead: the lock is then released as well.
    ///
    /// It waits for the futures of `run`, so these have to be polled. If the server does not answer, they wait for an attempt that is
    /// under way, and for the release, for the [response timeout](crate::Builder::response_timeout) each. The lock is then released in
    /// the background, and [`close`](Client::close) waits for that.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the runs still end.
    ///
    /// # Examples
    /// See [`Leader`].
    pub async fn resign(&self) {
        self.state.resign().await;
    }

    /// Asks the server who leads: the holder of the lock, with the name of its client if the server tells it. `None` if nobody does.
    ///
    /// # Errors
    /// The errors of [`Client::inspect`].
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let leader = client.leader("invoices");
    /// assert!(leader.who().await?.is_none());
    /// let campaign = tokio::spawn(leader.run(|_| std::future::pending::<()>()));
    /// leader.elected().await;
    /// let who = leader.who().await?.expect("it leads");
    /// assert_eq!(who.client_id(), Some(client.id()));
    /// # campaign.abort();
    /// # Ok(()) }
    /// ```
    pub async fn who(&self) -> Result<Option<HolderReport>, Error> {
        let report = self.client.inspect(self.key()).boxed().await?;
        Ok(report
            .holders
            .into_iter()
            .find(|holder| !holder.is_released))
    }
}

// A panic of a run ends its lead, and leaves the state as it is without a run.
impl UnwindSafe for Leader {}
impl RefUnwindSafe for Leader {}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader")
            .field("key", &self.key())
            .field("term", &self.term())
            .finish_non_exhaustive()
    }
}
