//! The settings by which the client logs in to its servers.

use std::error::Error as StdError;
use std::path::PathBuf;
use std::time::Duration;

use super::Builder;
use crate::config::credentials::Credentials;
use crate::config::source::Source;

/// Settings of the user and the password that servers ask for.
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
impl Builder {
    /// Sets the user and the password of the servers, instead of those in the URL; none by default.
    ///
    /// The client uses both texts unchanged: do not percent-encode them. They do not apply to Sentinels, whose user and password
    /// are part of the URL. To read a password again before each connection, use [`credentials_from`](Builder::credentials_from).
    /// The last call of the two counts.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().credentials("shop", "a p@ssword");
    /// let client = builder.connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        let credentials = Credentials::new(user, password);
        self.config.credentials = Some(Source::Fixed(credentials));
        self
    }

    /// Sets a function that gives the user and the password of the servers. The client calls it before each connection, so
    /// it uses a password that was changed.
    ///
    /// A client has up to three connections to each server. It calls the function for each attempt to make one. The time that the
    /// function takes counts towards the [connect timeout](Builder::connect_timeout). The client also calls the function each
    /// time the [`credentials_interval`](Builder::credentials_interval) has passed, 5 minutes by default. If the credentials have
    /// changed, it sends them over the open connections, so that a token is renewed before it expires. The nearest setting with a
    /// plain value is [`password_file`](Builder::password_file).
    ///
    /// # Errors
    /// An error or a panic of the function counts as a failed try to connect. The client tries again as in every outage. The text of the
    /// error becomes a part of [`Error::Unreachable`](crate::Error::Unreachable) for the first connection, and of
    /// [`Error::Unavailable`](crate::Error::Unavailable) later. The text should not contain the password.
    ///
    /// # Examples
    /// A password from a file that another program keeps up to date:
    ///
    /// ```no_run
    /// use distlock::{Client, Credentials};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = Client::builder().credentials_from(|| async {
    ///     // At once, and not by `tokio::fs`, which waits for a free thread of the runtime's pool for blocking calls.
    ///     let password = std::fs::read_to_string("/run/secrets/redis")?;
    ///     Ok::<_, std::io::Error>(Credentials::new("shop", password.trim_end()))
    /// });
    /// let client = builder.connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    pub fn credentials_from<F, Fut, E>(mut self, source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.config.credentials = Some(Source::asked(source, |credentials| credentials));
        self
    }

    /// Sets the file with the password for Sentinels; none by default. The client reads it as often as the
    /// [`password_file`](Builder::password_file).
    ///
    /// The user is the `sentinel_user` of the URL, which needs no `sentinel_password` then. Without it, the default user logs in.
    ///
    /// # Errors
    /// A file that cannot be read counts as a Sentinel that cannot be reached. A client of a URL without Sentinels is refused with
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig).
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().sentinel_password_file("/run/secrets/sentinel");
    /// let client = builder.connect("redis+sentinel://10.0.0.1,10.0.0.2/locks?sentinel_user=watcher").await?;
    /// # Ok(()) }
    /// ```
    pub fn sentinel_password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.sentinel_password_file = Some(path.into());
        self
    }

    /// Sets the file with the password; none by default. The client reads it for each connection, and each time the
    /// [`credentials_interval`](Builder::credentials_interval) has passed.
    ///
    /// White space at the end of the file is ignored. The user is that of the URL, which needs no password then, as in
    /// `redis://shop@host`. Without it, the default user logs in. [`credentials`](Builder::credentials) and
    /// [`credentials_from`](Builder::credentials_from) win over the file.
    ///
    /// # Errors
    /// A file that cannot be read counts as a failed try to connect, as an error of
    /// [`credentials_from`](Builder::credentials_from) does.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().password_file("/run/secrets/redis");
    /// let client = builder.connect("redis://shop@locks.example.com").await?;
    /// # Ok(()) }
    /// ```
    pub fn password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.password_file = Some(path.into());
        self
    }

    /// Sets how often the function of [`credentials_from`](Builder::credentials_from), or the
    /// [`password_file`](Builder::password_file), is read again for the open connections: at most a year, 5 minutes by default.
    /// Zero turns it off.
    ///
    /// The client sends changed credentials by AUTH over each connection, including the one for messages. If the server refuses
    /// them, the client logs a warning, and the connection keeps its rights.
    ///
    /// # Errors
    /// A value of more than a year is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is
    /// made.
    ///
    /// # Examples
    /// ```no_run
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder()
    ///     .password_file("/run/secrets/redis")
    ///     .credentials_interval(Duration::from_secs(60));
    /// let client = builder.connect("redis://shop@locks.example.com").await?;
    /// # Ok(()) }
    /// ```
    pub fn credentials_interval(mut self, interval: Duration) -> Self {
        self.settings.credentials_interval = Some(interval);
        self
    }
}
