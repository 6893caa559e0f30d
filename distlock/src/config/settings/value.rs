//! The values of settings as texts.

#[cfg(feature = "redis")]
use std::path::PathBuf;
use std::time::Duration;

use crate::config::duration;
#[cfg(feature = "redis")]
use crate::config::{PubSub, Replicas};

/// The text of [`Duration::MAX`]: no limit, for the settings that take it.
const UNLIMITED: &str = "unlimited";

/// A value that a text can say.
pub(super) trait Value: Sized {
    /// What the help of a command line writes for it.
    const SHAPE: &'static str;
    /// What is wrong with a text that cannot be read, without the text: in a URL it may be a piece of a password.
    const EXPECTED: &'static str;

    /// Reads a text. The error quotes it.
    fn read(text: &str) -> Result<Self, String>;

    /// The text that is read as this value.
    #[cfg_attr(
        not(any(test, all(feature = "test-util", feature = "redis"))),
        allow(dead_code, reason = "only tests write settings")
    )]
    fn text(&self) -> String;
}

impl Value for Duration {
    const SHAPE: &'static str = "TIME";
    const EXPECTED: &'static str = "is no duration; expected e.g. `500ms`, `5s`, `1m30s` (units: ms, s, m, h, d), or `unlimited`";

    fn read(text: &str) -> Result<Self, String> {
        if text.trim().eq_ignore_ascii_case(UNLIMITED) {
            return Ok(Self::MAX);
        }
        duration::parse(text)
    }

    fn text(&self) -> String {
        if *self == Self::MAX {
            return UNLIMITED.to_owned();
        }
        let seconds = self.as_secs();
        let nanos = self.subsec_nanos();
        // In the units that are read. The longest is an hour.
        let hours = seconds / 3_600;
        let seconds = seconds % 3_600;
        let millis = nanos / 1_000_000;
        let rest = nanos % 1_000_000;
        format!("{hours}h{seconds}s{millis}.{rest:06}ms")
    }
}

impl Value for u32 {
    const SHAPE: &'static str = "NUMBER";
    const EXPECTED: &'static str = "is not a number from 0 to 4294967295";

    fn read(text: &str) -> Result<Self, String> {
        // The standard library also reads a sign.
        let read = text.parse().ok();
        let read = read.filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        read.ok_or_else(|| wrong::<Self>(text))
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    const SHAPE: &'static str = "TEXT";
    const EXPECTED: &'static str = "is no text";

    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn text(&self) -> String {
        self.clone()
    }
}

#[cfg(feature = "redis")]
impl Value for PathBuf {
    const SHAPE: &'static str = "FILE";
    const EXPECTED: &'static str = "is no path of a file";

    fn read(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }

    fn text(&self) -> String {
        // A text was read, so it is one.
        self.to_string_lossy().into_owned()
    }
}

#[cfg(feature = "redis")]
impl Value for bool {
    const SHAPE: &'static str = "true|false";
    const EXPECTED: &'static str = "is none of `true`, `false`";

    fn read(text: &str) -> Result<Self, String> {
        one_of(text, [("true", true), ("false", false)])
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

#[cfg(feature = "redis")]
impl Value for PubSub {
    const SHAPE: &'static str = "auto|both|plain";
    const EXPECTED: &'static str = "is none of `auto`, `both`, `plain`";

    fn read(text: &str) -> Result<Self, String> {
        one_of(
            text,
            [
                ("auto", Self::Auto),
                ("both", Self::Both),
                ("plain", Self::Plain),
            ],
        )
    }

    fn text(&self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

#[cfg(feature = "redis")]
impl Value for Replicas {
    const SHAPE: &'static str = "NUMBER|connected";
    const EXPECTED: &'static str = "is neither `connected` nor a number from 0 to 4294967295";

    fn read(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("connected") {
            return Ok(Self::Connected);
        }
        u32::read(text)
            .map(Self::Count)
            .map_err(|_| wrong::<Self>(text))
    }

    fn text(&self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Connected => "connected".to_owned(),
        }
    }
}

/// The value whose name the text is, in small or capital letters.
#[cfg(feature = "redis")]
fn one_of<T: Value, const N: usize>(text: &str, values: [(&str, T); N]) -> Result<T, String> {
    let mut values = values.into_iter();
    let found = values.find(|(name, _)| name.eq_ignore_ascii_case(text));
    found
        .map(|(_, value)| value)
        .ok_or_else(|| wrong::<T>(text))
}

fn wrong<T: Value>(text: &str) -> String {
    format!("`{text}` {}", T::EXPECTED)
}
