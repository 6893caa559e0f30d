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
/// assert_eq!((holder.owner, holder.others), (guard.owner().to_string(), 0));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldBy {
    /// One of the owners that hold the lock, as `<client uuid>:<number>`.
    pub owner: String,
    /// How many others hold it as well, such as readers.
    pub others: u64,
}

impl HeldBy {
    pub(crate) fn new(owner: String, others: u64) -> Self {
        Self { owner, others }
    }
}

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.others {
            0 => write!(f, "owner {}", self.owner),
            others => write!(f, "owner {} and {others} more", self.owner),
        }
    }
}
