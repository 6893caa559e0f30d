//! What both TLS libraries need to report what is wrong.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use redis::RedisError;

use crate::error::Error;

/// The error of this type among the causes of an error.
pub(super) fn find<E: StdError + 'static>(error: &RedisError) -> Option<&E> {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // Both of these leave out the error that they contain when they are asked for their source.
        next = if let Some(shared) = error.downcast_ref::<Arc<dyn StdError + Send + Sync>>() {
            Some(&**shared)
        } else if let Some(io) = error.downcast_ref::<io::Error>() {
            io.get_ref().map(|inner| inner as &(dyn StdError + 'static))
        } else {
            error.source()
        };
    }
    None
}

/// A wrong value of a setting. The value itself may be a secret.
pub(super) fn invalid_pem(setting: &'static str, what: &str) -> Error {
    let expected = match setting {
        "tls_client_pem" => "a PEM with a certificate and its private key",
        _ => "a PEM with the certificates of authorities",
    };
    Error::invalid_config(setting, what, expected)
}
