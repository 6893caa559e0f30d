//! The kind of lock that an attribute or a layer acquires, as a setting.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::resource::kind::{Kind, lock_kinds};

/// Makes the modes from the table of the kinds of locks, whose first row is the default.
macro_rules! modes {
    (
        $(#[$default_text:meta])* $default:ident, $default_name:ident, $default_guard:ident;
        $($(#[$text:meta])* $kind:ident, $name:ident, $guard:ident;)*
    ) => {
        /// The kind of lock that the attribute, the layer or a [`LockSource`](crate::LockSource) acquires.
        ///
        /// Each mode stands for one of the locks that a [`Client`](crate::Client) makes. Semaphores and latches have no
        /// mode. As text a mode is its name in snake case, for example `"non_reentrant"`. With the feature `serde` it is
        /// serialized as that text, so a file of settings can have it.
        ///
        /// A mode has no settings of a kind: waiters of [`Spin`](Mode::Spin) make the default pauses. A lock with other
        /// [pauses](crate::SpinLock::backoff) is acquired by its own handle, in place of the attribute or the layer.
        ///
        /// A mode chooses the kind at run time. Where the kind is known when the code is written, it is a part of the
        /// type: [`Lock<K>`](crate::Lock).
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
            $(#[$default_text])*
            #[default]
            $default,
            $($(#[$text])* $kind,)*
        }

        impl Mode {
            pub(crate) const ALL: &[Self] = &[Self::$default, $(Self::$kind),*];

            pub(crate) fn kind(self) -> Kind {
                match self {
                    Self::$default => Kind::$default,
                    $(Self::$kind => Kind::$kind,)*
                }
            }

            fn name(self) -> &'static str {
                match self {
                    Self::$default => stringify!($default_name),
                    $(Self::$kind => stringify!($name),)*
                }
            }
        }
    };
}

lock_kinds!(modes);

impl Mode {
    fn expected() -> String {
        let names = Self::ALL.iter().map(|mode| format!("`{mode}`"));
        format!("one of {}", names.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Mode {
    type Err = Error;

    /// Parses the name of a mode in snake case.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] if the text is not the name of a mode.
    fn from_str(text: &str) -> Result<Self, Error> {
        let named = Self::ALL.iter().find(|mode| mode.name() == text);
        named
            .copied()
            .ok_or_else(|| Error::invalid_config("mode", format!("{text:?}"), Self::expected()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_reads_back_from_its_name() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse::<Mode>().unwrap(), *mode);
        }
    }

    /// A crate of macros cannot use the table of this crate, so the attribute has the names once more. Here it gets each of
    /// them.
    #[cfg(feature = "macros")]
    mod attribute {
        use super::*;
        use crate::{Client, distributed_lock};

        macro_rules! functions {
            ($($(#[$text:meta])* $kind:ident, $name:ident, $guard:ident;)*) => {
                $(
                    #[distributed_lock(key = "k", client = client, mode = $name, crate = crate)]
                    async fn $name(client: &Client) -> Result<Kind, Error> {
                        Ok(client.snapshot().holds[0].kind)
                    }
                )*

                #[tokio::test]
                async fn every_mode_has_its_name_in_the_attribute() {
                    $(
                        assert_eq!(Mode::$kind.name(), stringify!($name));
                        let client = Client::in_memory();
                        assert_eq!($name(&client).await.unwrap(), Kind::$kind);
                    )*
                }
            };
        }

        lock_kinds!(functions);
    }
}
