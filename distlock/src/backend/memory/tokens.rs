//! The fencing tokens of a server in this process.
//!
//! A token is at least the server's time, which never goes back. The token of a free key can therefore be forgotten: the
//! next one is higher without it.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::store::Name;

#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// The last token of each key that is held. A free key has one only if a client had seen a token above the server's
    /// time, which no client of this server does unless the server lost its data.
    last: HashMap<Name, u64, RandomState>,
    /// The server's time in microseconds since 1970. It grows with each token, also if the machine's clock is set back.
    time: u64,
}

impl Tokens {
    /// The token of a grant. A repeated attempt gets the last token again, unless that was lost or the client has seen a
    /// higher one, which means that this server has forgotten later grants.
    pub(super) fn of_grant(&mut self, name: &Name, is_new: bool, seen: u64, now: u64) -> u64 {
        let last = self.last.get(name).copied().unwrap_or(0);
        if !is_new && last != 0 && last >= seen {
            return last;
        }
        self.time = now.max(self.time.saturating_add(1));
        // Saturating: a server that does not check may count up to the highest number there is.
        let token = self.time.max(last.max(seen).saturating_add(1));
        self.last.insert(Arc::clone(name), token);
        token
    }

    /// Whether a grant of this key may have had the token. Without the last one none is above the server's time.
    pub(super) fn may_have_issued(&self, name: &str, token: u64, now: u64) -> bool {
        token <= self.last(name).unwrap_or(now.max(self.time))
    }

    /// Forgets the token of a key that nobody holds any more, if all later tokens are above it.
    pub(super) fn freed(&mut self, name: &Name) {
        if self.last.get(name).is_some_and(|last| *last <= self.time) {
            self.last.remove(name);
        }
    }

    /// The last token of a key, if it is kept.
    pub(super) fn last(&self, name: &str) -> Option<u64> {
        self.last.get(name).copied()
    }

    /// Loses the last token of a key, as a server does that lost its data.
    #[cfg(feature = "testing")]
    pub(super) fn lose(&mut self, name: &str) {
        self.last.remove(name);
    }

    /// Loses the last tokens of all keys. The time does not go back by that.
    #[cfg(feature = "testing")]
    pub(super) fn without_data(self) -> Self {
        Self {
            time: self.time,
            ..Self::default()
        }
    }

    #[cfg(feature = "test-util")]
    pub(super) fn kept(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.last.iter().map(|(name, token)| (name, *token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_grow_after_they_were_forgotten_and_the_clock_was_set_back() {
        let one = Name::from("one");
        let two = Name::from("two");
        let mut tokens = Tokens::default();
        let mut last = 0;
        for now in [1_000, 1_000, 400, 400, 1_000, 2_000] {
            for name in [&one, &two] {
                let token = tokens.of_grant(name, true, 0, now);
                assert!(token > last && token >= now, "{token} after {last}");
                last = token;
                tokens.freed(name);
                assert!(tokens.last.is_empty());
            }
        }
    }

    #[cfg(feature = "testing")]
    #[test]
    fn tokens_grow_after_all_data_was_lost_and_the_clock_was_set_back() {
        let name = Name::from("k");
        let mut tokens = Tokens::default();
        assert_eq!(tokens.of_grant(&name, true, 0, 1_000), 1_000);
        let mut tokens = tokens.without_data();
        assert_eq!(tokens.last("k"), None);
        assert_eq!(tokens.of_grant(&name, true, 0, 400), 1_001);
    }

    #[test]
    fn token_above_the_time_is_kept_until_the_time_has_passed_it() {
        let name = Name::from("k");
        let mut tokens = Tokens::default();
        assert_eq!(tokens.of_grant(&name, true, 5_000, 1_000), 5_001);
        tokens.freed(&name);
        assert_eq!(tokens.of_grant(&name, true, 0, 1_000), 5_002);
        tokens.freed(&name);
        assert_eq!(tokens.of_grant(&name, true, 0, 9_000), 9_000);
        tokens.freed(&name);
        assert!(tokens.last.is_empty());
    }

    #[test]
    fn repeated_attempt_has_the_same_token_unless_it_was_lost_or_a_higher_one_was_seen() {
        let name = Name::from("k");
        let mut tokens = Tokens::default();
        assert_eq!(tokens.of_grant(&name, true, 0, 1_000), 1_000);
        assert_eq!(tokens.of_grant(&name, false, 1_000, 2_000), 1_000);
        assert_eq!(tokens.of_grant(&name, false, 3_000, 2_000), 3_001);
        tokens.last.clear();
        assert_eq!(tokens.of_grant(&name, false, 0, 4_000), 4_000);
    }
}
