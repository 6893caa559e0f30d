//! The users and the passwords of a URL.

use super::text::{decoded, invalid, not_encoded};
use crate::config::credentials::Credentials;
use crate::error::Error;

/// Whether there is a user and no password. A user without a name is none.
pub(super) fn is_user_alone(user_info: &str) -> bool {
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    !user.is_empty() && password.is_empty() && !user_info.contains('@')
}

/// The user and the password before an `@`.
pub(super) fn credentials(user_info: &str) -> Result<Credentials, Error> {
    if user_info.contains('@') {
        return Err(not_encoded());
    }
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    login_of(
        decoded(user, "the user")?,
        decoded(password, "the password")?,
    )
}

pub(super) fn login_of(user: String, password: String) -> Result<Credentials, Error> {
    match (user.is_empty(), password.is_empty()) {
        (_, true) => Err(invalid(
            "a user without password; write `user:password@`, or leave both out",
        )),
        (true, false) => Ok(Credentials::of_default_user(password)),
        (false, false) => Ok(Credentials::new(user, password)),
    }
}
