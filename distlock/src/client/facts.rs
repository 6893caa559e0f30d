//! Facts about the servers of a client.

use crate::backend::ServerFacts;
use crate::client::Client;
use crate::resource::key::Key;

impl Client {
    /// Asks each server for what an operator needs to know: its version, its settings, how long it takes to answer, and which
    /// rights the client's user lacks.
    ///
    /// There is one entry for each server that has locks: one, or one for each master of a cluster. A memory server has no entry.
    /// The command line `distlock doctor` shows these facts, and explains them. The method changes nothing in the server. It
    /// publishes one message that nobody listens to. If the user may not ask a question, or the server does not answer it, the
    /// fact is an [`UnknownFact`](crate::UnknownFact).
    ///
    /// # Cancel safety
    /// Dropping the future stops the questions.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// for facts in client.server_facts().await {
    ///     match facts.info {
    ///         Ok(info) => println!("{}: {:?}", facts.server, info.get("maxmemory_policy")),
    ///         Err(unknown) => println!("{}: {unknown}", facts.server),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn server_facts(&self) -> Vec<ServerFacts> {
        let session = &*self.session();
        // A prefix that is too long for any key is reported when a lock is used.
        match Key::new(&session.config.key_prefix, "distlock-doctor") {
            Ok(key) => session.backend.server_facts(&key).await,
            Err(_) => Vec::new(),
        }
    }

    /// Returns the addresses of the client's servers, without user and password, as errors name them.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(distlock::Client::in_memory().servers(), "memory");
    /// ```
    pub fn servers(&self) -> String {
        self.session().backend.servers()
    }

    /// Returns the prefix of all keys in the server, as set by [`Builder::key_prefix`](crate::Builder::key_prefix).
    ///
    /// # Examples
    /// ```
    /// use distlock::{Client, MemoryServer};
    ///
    /// let client = Client::builder().key_prefix("shop:").in_memory(&MemoryServer::new())?;
    /// assert_eq!(client.key_prefix(), "shop:");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn key_prefix(&self) -> String {
        self.session().config.key_prefix.to_string()
    }
}
