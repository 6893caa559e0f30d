//! Keys: the text from the user, checked once, and the name under which the server stores it.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::resource::kind::Kind;

/// The longest key in bytes, including the prefix. Real names are far shorter, and a key of this length does not slow
/// Redis down.
const MAX_KEY_BYTES: usize = 4096;

/// A validated key with its client's prefix. Clones are cheap: they share one string.
#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]
#[derive(Clone)]
pub struct Key {
    name: Arc<str>,
    prefix: u32,
    /// How long a number under the key stays after each use, in ms; 0 for ever. Part of the key, so that everything that uses
    /// the number knows it. Two keys that differ in it are equal.
    expires_after: u32,
}

impl Key {
    /// Makes a key. Refuses an empty key, and a key that is longer than [`MAX_KEY_BYTES`] including the prefix.
    pub(crate) fn new(prefix: &str, key: &str) -> Result<Self, Error> {
        if key.is_empty() {
            return Err(Error::invalid_key(key, "it is empty"));
        }
        let length = prefix.len() + key.len();
        if length > MAX_KEY_BYTES {
            let why = format!(
                "it has {length} bytes with its prefix, at most {MAX_KEY_BYTES} are allowed"
            );
            return Err(Error::invalid_key(key, why));
        }
        let name = match prefix {
            "" => Arc::from(key),
            _ => [prefix, key].concat().into(),
        };
        Ok(Self {
            name,
            // Not longer than MAX_KEY_BYTES.
            prefix: u32::try_from(prefix.len()).unwrap_or_default(),
            expires_after: 0,
        })
    }

    /// The same key, whose number expires so long after its last use. The caller has checked that it is 45 days at most.
    pub(crate) fn expiring(mut self, after: Duration) -> Self {
        // Milliseconds of 45 days fit.
        self.expires_after = u32::try_from(after.as_millis()).unwrap_or(u32::MAX);
        self
    }

    /// How long a number under the key stays after each use; zero is for ever.
    pub(crate) fn expires_after(&self) -> Duration {
        Duration::from_millis(self.expires_after.into())
    }

    /// The key as the user wrote it.
    pub(crate) fn text(&self) -> &str {
        &self.name[self.prefix as usize..]
    }

    /// The name under which the server stores the key: the client's prefix and the user's key.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }
}

/// One primitive under one key of a client.
#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// The primitive.
    pub kind: Kind,
    /// The key, with its client's prefix.
    pub key: Key,
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.prefix == other.prefix
    }
}

impl Eq for Key {}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.name, self.prefix).cmp(&(&other.name, other.prefix))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Of the name alone, since all keys of a client have one prefix. An acquisition looks its key up several times.
impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Without the prefix, which is the same for nearly all keys.
        state.write(self.name.as_bytes());
    }
}

impl Hash for Resource {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
        state.write_u8(self.kind as u8);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.text(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_is_in_the_name_and_not_in_the_text() {
        let key = Key::new("shop:", "order:42").unwrap();
        assert_eq!((key.text(), &**key.name()), ("order:42", "shop:order:42"));
    }

    #[test]
    fn odd_characters_pass_and_bad_lengths_do_not() {
        for key in [
            "a b",
            "\0",
            "\r\n",
            "{x}:y",
            "ключ",
            &"k".repeat(MAX_KEY_BYTES),
        ] {
            assert_eq!(Key::new("", key).unwrap().text(), key);
        }
        let long = "k".repeat(MAX_KEY_BYTES + 1);
        for (prefix, key) in [("", ""), ("p:", ""), ("", long.as_str()), ("p", &long[1..])] {
            assert!(matches!(
                Key::new(prefix, key),
                Err(Error::InvalidKey { .. })
            ));
        }
    }
}
