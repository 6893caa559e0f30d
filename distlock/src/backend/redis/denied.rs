//! Which of several keys a user may not access. A server that refuses a command over several keys does not say it.

use super::backend::RedisBackend;
use crate::backend::Fault;
use crate::resource::key::Key;
use crate::sync::all;

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
    // Every version speaks of a key when it refuses one, and of the command when it refuses that.
    if !cause.to_string().contains(" key") {
        return Fault::Denied(None, cause);
    }
    let is_denied = |key: Key| async move {
        // Changes nothing, and each lock needs the right to it.
        let mut look = redis::cmd("EXISTS");
        look.arg(&**key.name());
        let answer = backend.servers.route(&key).send(look).await;
        matches!(answer, Err(Fault::Denied(..))).then_some(key)
    };
    let denied = all(keys.cloned().map(is_denied)).await;
    Fault::Denied(denied.into_iter().flatten().next(), cause)
}
