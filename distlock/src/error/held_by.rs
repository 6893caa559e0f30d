use std::fmt;

/// The holder that a refusal of the server named.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use std::time::Duration;
/// use distlock::{Client, Error, MemoryServer};
///
/// let server = MemoryServer::new();
/// let (one, two) = (Client::builder().in_memory(&server)?, Client::builder().in_memory(&server)?);
/// let guard = one.lock("order:42").acquire().await?;
/// let busy = two.lock("order:42").acquire().wait(Duration::ZERO).await.unwrap_err();
/// let Error::Timeout { holder: Some(holder), .. } = busy else { panic!("{busy}") };
/// assert_eq!((holder.owner, holder.others), (Some(guard.owner().to_string()), 0));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldBy {
    /// One of the owners that hold the lock, as `<client uuid>:<number>`. `None` for semaphores, whose owners are many.
    pub owner: Option<String>,
    /// How many others hold it as well, such as readers. Readers that have crashed may be counted until the last one leaves. For a [`Semaphore`](crate::Semaphore) it is the number of
    /// owners that have permits, and for an [`ExpirableSemaphore`](crate::ExpirableSemaphore) that of the permits which are
    /// acquired. Redisson's holders of a plain semaphore are not known.
    pub others: u64,
    /// The [name](crate::Builder::name) of the owner's client, if the client that was refused knows it without asking: its
    /// own, or one that it learned from an earlier [report](crate::Client::inspect).
    pub client: Option<String>,
    /// Whether `client` is the client that was refused.
    is_own: bool,
    /// Whether `others` are permits.
    are_permits: bool,
}

impl HeldBy {
    pub(crate) fn new(owner: String, others: u64) -> Self {
        Self {
            owner: Some(owner),
            others,
            client: None,
            is_own: false,
            are_permits: false,
        }
    }

    /// Says what the owner's client is called. `is_own`: it is the client that was refused.
    pub(crate) fn name_client(&mut self, name: String, is_own: bool) {
        (self.client, self.is_own) = (Some(name), is_own);
    }

    /// So many owners of a semaphore, or so many permits of an expirable one.
    pub(crate) fn many(others: u64, are_permits: bool) -> Self {
        Self {
            owner: None,
            others,
            client: None,
            is_own: false,
            are_permits,
        }
    }
}

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.client {
            Some(client) if self.is_own => write!(f, "this client, {client}: ")?,
            Some(client) => write!(f, "{client}, ")?,
            None => {}
        }
        match (&self.owner, self.others) {
            (Some(owner), 0) => write!(f, "owner {owner}"),
            (Some(owner), others) => write!(f, "owner {owner} and {others} more"),
            (None, others) if self.are_permits => write!(f, "the owners of {others} permits"),
            (None, 1) => f.write_str("one owner"),
            (None, others) => write!(f, "{others} owners"),
        }
    }
}
