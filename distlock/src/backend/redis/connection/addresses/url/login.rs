//! The users and the passwords of a URL.

use super::text::{decoded, invalid, not_encoded};
use crate::config::credentials::Credentials;
use crate::error::Error;

/// Who logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Login {
    /// A user, if the password is in a file or comes from the builder.
    User(String),
    Full(Credentials),
}

impl Login {
    /// Reads what stands before the `@`. Providers without a password write a colon there.
    pub(super) fn of_user_info(user_info: &str) -> Result<Option<Self>, Error> {
        if user_info == ":" {
            return Ok(None);
        }
        if user_info.contains('@') {
            return Err(not_encoded());
        }
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        let user = decoded(user, "the user")?;
        if password.is_empty() && !user.is_empty() {
            return Ok(Some(Self::User(user)));
        }
        Self::full(user, decoded(password, "the password")?).map(Some)
    }

    /// Reads two words of a query.
    pub(super) fn of_words(
        user: Option<String>,
        password: Option<String>,
    ) -> Result<Option<Self>, Error> {
        match password {
            Some(password) => Self::full(user.unwrap_or_default(), password).map(Some),
            None => Ok(user.filter(|user| !user.is_empty()).map(Self::User)),
        }
    }

    fn full(user: String, password: String) -> Result<Self, Error> {
        match (user.is_empty(), password.is_empty()) {
            (_, true) => Err(invalid(
                "a user without password; write `user:password@`, or leave both out",
            )),
            (true, false) => Ok(Self::Full(Credentials::of_default_user(password))),
            (false, false) => Ok(Self::Full(Credentials::new(user, password))),
        }
    }

    pub(crate) fn user(&self) -> Option<&str> {
        match self {
            Self::User(user) => Some(user),
            Self::Full(credentials) => credentials.user(),
        }
    }
}
