//! The user and the password of a server, and where they come from.

use std::fmt;

use super::source::Source;

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
        // Without the password, which would come into logs.
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

pub(crate) type CredentialsSource = Source<Credentials>;
