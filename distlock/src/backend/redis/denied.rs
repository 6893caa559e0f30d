//! Which of several keys a user may not access. A server that refuses a command over several keys does not say it.

use super::backend::RedisBackend;
use crate::backend::Fault;
use crate::resource::key::Key;

/// The fault of a command over these keys, with the key that the user may not access. Without one if that is not why, or if the server
/// does not answer.
pub(super) async fn with_key(
    backend: &RedisBackend,
    fault: Fault,
    keys: impl Iterator<Item = &Key>,
) -> Fault {
    let Fault::Denied(None, cause) = fault else {
        return fault;
    };
    for key in keys {
        // Changes nothing, and each lock needs the right to it.
        let mut look = redis::cmd("EXISTS");
        look.arg(&**key.name());
        match backend.servers.route(key).send(look).await {
            Ok(_) => {}
            Err(Fault::Denied(..)) => return Fault::Denied(Some(key.clone()), cause),
            Err(_) => break,
        }
    }
    Fault::Denied(None, cause)
}
