//! The option `mode`: the kind of lock.

use syn::{Error, Expr, Result};

use super::keyword;

/// The value of `mode`.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Mode {
    #[default]
    Reentrant,
    NonReentrant,
    Spin,
    Fenced,
    Fair,
    NonReentrantFair,
    Read,
    Write,
}

/// Each mode with its keyword and its variant of `distlock::Mode`. A test in the module of that type gives each of its
/// variants to the attribute.
const MODES: [(Mode, &str, &str); 8] = [
    (Mode::Reentrant, "reentrant", "Reentrant"),
    (Mode::NonReentrant, "non_reentrant", "NonReentrant"),
    (Mode::Spin, "spin", "Spin"),
    (Mode::Fenced, "fenced", "Fenced"),
    (Mode::Fair, "fair", "Fair"),
    (
        Mode::NonReentrantFair,
        "non_reentrant_fair",
        "NonReentrantFair",
    ),
    (Mode::Read, "read", "Read"),
    (Mode::Write, "write", "Write"),
];

/// Primitives that are not modes, and what to write for each instead.
const NOT_MODES: [(&str, &str); 5] = [
    (
        "semaphore",
        "a semaphore is not a mode, because it counts permits instead of locking a key; use \
         `client.expirable_semaphore(..)` in the body",
    ),
    (
        "latch",
        "a latch is not a mode, because it is never held; use `client.count_down_latch(..)` in the body",
    ),
    (
        "multi",
        "several keys need no mode: write `keys = [\"order:<id>\", \"stock:<item>\"]`",
    ),
    ("redlock", REDLOCK),
    ("quorum", REDLOCK),
];

const REDLOCK: &str = "a Redlock is not a mode but a client: write `client = quorum`";

impl Mode {
    pub(crate) fn parse(value: &Expr) -> Result<Self> {
        let message = match keyword::keyword(value) {
            Some(keyword) => match MODES.iter().find(|(_, name, _)| *name == keyword) {
                Some((mode, ..)) => return Ok(*mode),
                None => unknown(&keyword),
            },
            None => format!("expected a mode: {}", keyword::quoted_list(&names())),
        };
        Err(Error::new_spanned(value, message))
    }

    fn row(self) -> (&'static str, &'static str) {
        let row = MODES.iter().find(|(mode, ..)| *mode == self);
        row.map_or(("", ""), |(_, name, variant)| (name, variant))
    }

    /// The keyword of the mode.
    pub(crate) fn name(self) -> &'static str {
        self.row().0
    }

    /// Whether this is the keyword of a mode.
    pub(crate) fn is_name(written: &str) -> bool {
        names().contains(&written)
    }

    /// The variant of `distlock::Mode`.
    pub(crate) fn variant(self) -> &'static str {
        self.row().1
    }

    /// Whether `hold_at_least` works with this mode.
    pub(crate) fn supports_hold_at_least(self) -> bool {
        matches!(
            self,
            Self::Reentrant | Self::NonReentrant | Self::Spin | Self::Fenced
        )
    }

    /// The keywords of the modes that work with `hold_at_least`.
    pub(crate) fn names_supporting_hold_at_least() -> Vec<&'static str> {
        let supporting = MODES
            .iter()
            .filter(|(mode, ..)| mode.supports_hold_at_least());
        supporting.map(|(_, name, _)| *name).collect()
    }
}

fn names() -> [&'static str; MODES.len()] {
    MODES.map(|(_, name, _)| name)
}

fn unknown(keyword: &str) -> String {
    let plain = keyword.to_lowercase().replace('_', "");
    if let Some((_, message)) = NOT_MODES.iter().find(|(no, _)| plain.contains(no)) {
        return (*message).to_owned();
    }
    // Outside of attributes the mode is called `Mode::Write`.
    let written = keyword.rsplit("::").next().unwrap_or(keyword);
    format!(
        "unknown mode `{keyword}`; {}expected {}",
        keyword::did_you_mean(keyword::similar(written, &names())),
        keyword::quoted_list(&names())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: &str) -> String {
        let value = syn::parse_str(value).unwrap();
        match Mode::parse(&value) {
            Ok(mode) => mode.variant().to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_mode_is_read_with_quotes_and_without() {
        for (_, name, variant) in MODES {
            assert_eq!(parsed(name), variant);
            assert_eq!(parsed(&format!("{name:?}")), variant);
        }
    }

    #[test]
    fn other_values_are_refused_with_a_suggestion() {
        for (value, message) in [
            ("wriet", "unknown mode `wriet`; did you mean `write`?"),
            (
                "Mode::Write",
                "unknown mode `Mode::Write`; did you mean `write`?",
            ),
            (
                "NonReentrant",
                "unknown mode `NonReentrant`; did you mean `non_reentrant`?",
            ),
            (
                r#""exclusive""#,
                "unknown mode `exclusive`; expected `reentrant`, `non_reentrant`",
            ),
            ("expirable_semaphore", "a semaphore is not a mode"),
            ("multi_lock", "several keys need no mode"),
            ("Quorum", "a Redlock is not a mode"),
            ("red_lock", "a Redlock is not a mode"),
            ("shared", "unknown mode `shared`; expected"),
            ("count_down_latch", "a latch is not a mode"),
            ("5", "expected a mode: `reentrant`"),
        ] {
            let parsed = parsed(value);
            assert!(parsed.starts_with(message), "{value} says {parsed}");
        }
    }
}
