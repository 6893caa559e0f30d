//! What an acquisition asks of its hold.

use std::panic::Location;
use std::time::Duration;

use super::term::Term;
use crate::clock::Tick;

/// What an acquisition asks of its hold, whether the server grants the hold or another guard hands it over. Made once, with the
/// request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldSettings {
    /// A fixed lease; `None` is the watchdog's.
    pub(crate) lease: Option<Duration>,
    /// The longest time for which it is held: the watchdog renews it no longer, and a fixed lease is cut to it.
    pub(crate) max_hold: Option<Duration>,
    /// The hold stops counting as held this long before its deadline; zero except for a quorum.
    pub(crate) margin: Duration,
    /// Where in the user's code the acquisition was made.
    pub(crate) call_site: &'static Location<'static>,
}

impl HoldSettings {
    /// Whether it ends at a time of its own, while the watchdog would go on to renew it.
    pub(crate) fn has_own_end(&self) -> bool {
        self.lease.is_some() || self.max_hold.is_some()
    }

    /// The term of a guard that has a hold from `since` on. `lease`: that which the server was asked for. `margin`: how long
    /// before its end it counts as ended.
    pub(crate) fn term(&self, since: Tick, lease: Duration, margin: Duration) -> Term {
        let Some(fixed) = self.lease else {
            return Term::kept(since, self.max_hold);
        };
        // Of the two, the server was asked for the shorter one.
        let end = since.after(lease).before(margin);
        match self.max_hold {
            Some(most) if most < fixed.saturating_sub(margin) => Term::UntilLimit(end),
            _ => Term::Until(end),
        }
    }
}
