//! The settings that say who the client is to its servers.

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
    /// They are used as they are: nothing is percent-encoded here. They do not apply to Sentinels, whose user and password
    /// are part of the URL. To read a password again before each connection, use
    /// [`credentials_from`](Builder::credentials_from). The last call of the two counts.
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
    /// A client has up to three connections to each server. It calls the function when it makes one of them, and again for
    /// each new try. The function's time is a part of the [connect timeout](Builder::connect_timeout). It is also asked again
    /// each time the [`credentials_interval`](Builder::credentials_interval) has passed, 5 minutes by default, and what has
    /// changed is sent over the connections that stand, so that an expiring token is renewed. The nearest setting with a plain
    /// value is [`password_file`](Builder::password_file).
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

    /// Sets the file of the password for Sentinels, which is read again as that of
    /// [`password_file`](Builder::password_file) is; none by default.
    ///
    /// The user is `sentinel_user` in the URL, which may stand there without `sentinel_password`. Without one it is the default
    /// user.
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

    /// Sets the file of the password, which is read again for each connection and each
    /// [`credentials_interval`](Builder::credentials_interval); none by default.
    ///
    /// White space at its end does not count. The user is that of the URL, which may stand there without a password, as in
    /// `redis://shop@host`. Without one it is the default user. [`credentials`](Builder::credentials) and
    /// [`credentials_from`](Builder::credentials_from) count more than the file.
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
    /// [`password_file`](Builder::password_file), is asked again for the connections that stand: at most a year, 5 minutes by
    /// default. Zero turns it off.
    ///
    /// Credentials that have changed are sent by AUTH over each connection, also over that for messages. If the server
    /// refuses them, a warning says so, and the connection keeps the rights that it has.
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
