//! The kind of lock that an attribute or a layer acquires, as a setting.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::resource::kind::Kind;

/// The kind of lock that the attribute, the layer or a [`LockSource`](crate::LockSource) acquires.
///
/// Each mode stands for one of the locks that a [`Client`](crate::Client) makes. Semaphores and latches have no mode.
/// As text a mode is its name in snake case, for example `"non_reentrant"`.
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
    /// [`Client::lock`](crate::Client::lock): one owner, which may enter again inside its scope.
    #[default]
    Reentrant,
    /// [`Client::non_reentrant_lock`](crate::Client::non_reentrant_lock): one owner, which may not enter again.
    NonReentrant,
    /// [`Client::spin_lock`](crate::Client::spin_lock): one owner; waiters poll and do not subscribe.
    Spin,
    /// [`Client::fenced_lock`](crate::Client::fenced_lock): each grant has a fencing token. It locks a
    /// single key.
    Fenced,
    /// [`Client::fair_lock`](crate::Client::fair_lock): granted in the order of arrival among all clients.
    Fair,
    /// [`Client::non_reentrant_fair_lock`](crate::Client::non_reentrant_fair_lock): granted in the order of arrival;
    /// its owner may not enter again.
    NonReentrantFair,
    /// The read side of [`Client::rw_lock`](crate::Client::rw_lock): any number of readers, if there is no writer.
    Read,
    /// The write side of [`Client::rw_lock`](crate::Client::rw_lock): one writer, if there are no readers.
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
        self.kind().name()
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

    /// Parses the name of a mode in snake case.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] if the text is not the name of a mode.
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
