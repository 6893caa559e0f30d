//! What all parts of a URL are read by.

use percent_encoding::percent_decode_str;

use crate::error::Error;

/// A number of digits alone: the standard library's parser also takes a sign.
pub(super) fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Replaces `%40` and the like.
pub(super) fn decoded(text: &str, what: &str) -> Result<String, Error> {
    let is_escape = |after: &str| {
        let digits = after.as_bytes().iter().take(2);
        digits.filter(|digit| digit.is_ascii_hexdigit()).count() == 2
    };
    if !text.split('%').skip(1).all(is_escape) {
        return Err(invalid(format!(
            "in {what}, a `%` without two hex digits; write a `%` itself as `%25`"
        )));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded
        .map_err(|_| invalid(format!("{what} is not UTF-8")))?
        .into_owned())
}

pub(super) fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidUrl {
        reason: reason.into(),
    }
}

/// The `@` that ends user and password is not where it should be, so that any part may be a piece of a password.
pub(super) fn not_encoded() -> Error {
    invalid(
        "an `@` stands in an odd place; in a user, a password, a path and a query, write `@` as `%40`, `/` as `%2F`, `?` as `%3F` \
         and `#` as `%23`",
    )
}
