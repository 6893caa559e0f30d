//! Which lock an attribute or a layer takes, by name.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::kind::Kind;

/// Which kind of lock to take, where that is a setting: in the attribute, in the layer, and in [`LockSource`](crate::LockSource).
///
/// Each is one of the locks that a [`Client`](crate::Client) has a constructor for. Semaphores and latches are no locks
/// and have no mode. As text, the names are those below in lower case: `"non_reentrant"`.
///
/// # Examples
/// ```
/// use distlock::Mode;
///
/// let mode: Mode = "write".parse()?;
/// assert_eq!(mode, Mode::Write);
/// assert_eq!(mode.to_string(), "write");
/// assert!("wriet".parse::<Mode>().unwrap_err().to_string().contains("wriet"));
/// # Ok::<(), distlock::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// [`Client::lock`](crate::Client::lock): one owner, who may enter again.
    #[default]
    Reentrant,
    /// [`Client::non_reentrant_lock`](crate::Client::non_reentrant_lock): one owner, who may not.
    NonReentrant,
    /// [`Client::spin_lock`](crate::Client::spin_lock): waits without subscriptions.
    Spin,
    /// [`Client::fenced_lock`](crate::Client::fenced_lock): each grant has a token. Of one key at a time.
    Fenced,
    /// [`Client::fair_lock`](crate::Client::fair_lock): in order of arrival, among all clients.
    Fair,
    /// [`Client::non_reentrant_fair_lock`](crate::Client::non_reentrant_fair_lock): the same, never entered twice.
    NonReentrantFair,
    /// The read side of [`Client::rw_lock`](crate::Client::rw_lock): many at once, but no writer.
    Read,
    /// The write side of [`Client::rw_lock`](crate::Client::rw_lock).
    Write,
}

impl Mode {
    const ALL: [Self; 8] = [
        Self::Reentrant,
        Self::NonReentrant,
        Self::Spin,
        Self::Fenced,
        Self::Fair,
        Self::NonReentrantFair,
        Self::Read,
        Self::Write,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Reentrant => "reentrant",
            Self::NonReentrant => "non_reentrant",
            Self::Spin => "spin",
            Self::Fenced => "fenced",
            Self::Fair => "fair",
            Self::NonReentrantFair => "non_reentrant_fair",
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Reentrant => Kind::Reentrant,
            Self::NonReentrant => Kind::NonReentrant,
            Self::Spin => Kind::Spin,
            Self::Fenced => Kind::Fenced,
            Self::Fair => Kind::Fair,
            Self::NonReentrantFair => Kind::NonReentrantFair,
            Self::Read => Kind::Read,
            Self::Write => Kind::Write,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = Error;

    /// # Errors
    /// [`Error::InvalidConfig`] with the text, where it names no mode.
    fn from_str(text: &str) -> Result<Self, Error> {
        let named = Self::ALL.into_iter().find(|mode| mode.name() == text);
        named.ok_or_else(|| Error::invalid_config("mode", text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_reads_back_from_its_name() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse::<Mode>().unwrap(), mode);
        }
    }
}
