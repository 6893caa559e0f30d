//! Keys: the text from the user, checked once, and the name under which the server stores it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::config;
use crate::error::Error;
use crate::resource::kind::Kind;

/// A validated key with its client's prefix. Clones are cheap: they share one string.
#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    name: Arc<str>,
    prefix: usize,
}

impl Key {
    /// Makes a key. Refuses an empty key, and a key that is longer than [`config::MAX_KEY_BYTES`] including the prefix.
    pub(crate) fn new(prefix: &str, key: &str) -> Result<Self, Error> {
        if key.is_empty() {
            return Err(Error::invalid_key(key, "it is empty"));
        }
        let length = prefix.len() + key.len();
        if length > config::MAX_KEY_BYTES {
            let why = format!(
                "it has {length} bytes with its prefix, at most {} are allowed",
                config::MAX_KEY_BYTES
            );
            return Err(Error::invalid_key(key, why));
        }
        let name = match prefix {
            "" => Arc::from(key),
            _ => [prefix, key].concat().into(),
        };
        Ok(Self {
            name,
            prefix: prefix.len(),
        })
    }

    /// The key as the user wrote it.
    pub(crate) fn text(&self) -> &str {
        &self.name[self.prefix..]
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

/// Of the name alone, since all keys of a client have one prefix. An acquisition looks its key up several times.
impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
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
            &"k".repeat(config::MAX_KEY_BYTES),
        ] {
            assert_eq!(Key::new("", key).unwrap().text(), key);
        }
        let long = "k".repeat(config::MAX_KEY_BYTES + 1);
        for (prefix, key) in [("", ""), ("p:", ""), ("", long.as_str()), ("p", &long[1..])] {
            assert!(matches!(
                Key::new(prefix, key),
                Err(Error::InvalidKey { .. })
            ));
        }
    }
}
