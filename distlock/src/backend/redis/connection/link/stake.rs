//! Whether the end of a connection concerns anybody.

use std::fmt;
use std::sync::OnceLock;

/// Whether a client holds, waits for or releases anything. Servers and balancers close connections that are idle, and nobody
/// has to look at that.
#[derive(Default)]
pub(crate) struct Stake(OnceLock<HasStake>);

type HasStake = Box<dyn Fn() -> bool + Send + Sync>;

impl Stake {
    /// Sets the function that answers. It is set once, when the client is made.
    pub(crate) fn set(&self, has_stake: impl Fn() -> bool + Send + Sync + 'static) {
        let _is_first = self.0.set(Box::new(has_stake));
    }

    /// As long as nobody can answer, there is something.
    pub(crate) fn is_there(&self) -> bool {
        self.0.get().is_none_or(|has_stake| has_stake())
    }
}

impl fmt::Debug for Stake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stake(..)")
    }
}
