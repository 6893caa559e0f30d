//! The user and the password of a server, and where they come from.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;

use crate::error::Cause;
use crate::foreign;

/// The user and the password with which a client logs in to its servers.
///
/// Its `Debug` output does not contain the password.
///
/// # Examples
/// ```
/// use distlock::Credentials;
///
/// let shop = Credentials::new("shop", "secret");
/// assert!(!format!("{shop:?}").contains("secret"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// Creates the credentials of a user of the server's access control list (ACL).
    ///
    /// # Examples
    /// See [`Credentials`].
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            user: Some(user.into()),
            password: password.into(),
        }
    }

    /// Creates the credentials of the default user, whose password is the server's setting `requirepass`.
    ///
    /// # Examples
    /// ```
    /// let default_user = distlock::Credentials::of_default_user("secret");
    /// ```
    pub fn of_default_user(password: impl Into<String>) -> Self {
        Self {
            user: None,
            password: password.into(),
        }
    }

    /// The user; `None` is the default user.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    pub(crate) fn password(&self) -> &str {
        &self.password
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// The pending answer of a source.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Credentials, Cause>> + Send>>;

/// Where the credentials come from.
#[derive(Clone)]
pub(crate) enum CredentialsSource {
    Fixed(Credentials),
    /// A function of the user, which is asked before each connection.
    Asked(Arc<dyn Fn() -> Answer + Send + Sync>),
}

impl CredentialsSource {
    /// The credentials of the next connection.
    pub(crate) async fn get(&self) -> Result<Credentials, Cause> {
        match self {
            Self::Fixed(credentials) => Ok(credentials.clone()),
            Self::Asked(ask) => foreign::call_user(|| ask()).await,
        }
    }
}

impl fmt::Debug for CredentialsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(credentials) => credentials.fmt(f),
            Self::Asked(_) => f.write_str("Asked(..)"),
        }
    }
}

// The function is shared and never changed, as a client's other callbacks.
impl UnwindSafe for CredentialsSource {}
impl RefUnwindSafe for CredentialsSource {}
