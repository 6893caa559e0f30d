//! Who holds: `<client uuid>:<number>`, one number for each acquisition, never used twice.

use std::fmt;

use uuid::Uuid;

/// The identity under which a hold stands in Redis: `<client uuid>:<number>`.
///
/// Every outermost acquisition has an owner of its own, which no other acquisition ever had. Redisson
/// writes its holders in the same form, with a thread's id for the number.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let guard = client.lock("order:42").acquire().await?;
/// assert!(guard.owner().to_string().starts_with(&client.id().to_string()));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    client: Uuid,
    number: u64,
}

impl Owner {
    pub(crate) fn new(client: Uuid, number: u64) -> Self {
        Self { client, number }
    }

    /// As the server sees it. Written for every command, so without the detours of formatting.
    pub(crate) fn text(&self) -> String {
        let (mut uuid, mut number) = (Uuid::encode_buffer(), itoa::Buffer::new());
        let (uuid, number) = (
            self.client.as_hyphenated().encode_lower(&mut uuid),
            number.format(self.number),
        );
        let mut text = String::with_capacity(uuid.len() + 1 + number.len());
        text.push_str(uuid);
        text.push(':');
        text.push_str(number);
        text
    }

    /// The id of the client that acquired.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.lock("order:42").acquire().await?;
    /// assert_eq!(guard.owner().client(), client.id());
    /// # Ok(()) }
    /// ```
    pub fn client(&self) -> Uuid {
        self.client
    }

    /// The number of the acquisition within its client, from 1 upwards.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let (one, two) = (client.lock("a").acquire().await?, client.lock("b").acquire().await?);
    /// assert!(one.owner().number() < two.owner().number());
    /// # Ok(()) }
    /// ```
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({self})")
    }
}
