//! When a client has last seen the numbers of semaphores.

use lru::LruCache;

use crate::clock::Tick;
use crate::config::{MAX_SLEEP_WITHOUT_MESSAGE, NUMBERS_KEPT};
use crate::resource::key::Key;
use crate::sync::Mutex;

/// What is known of the number of each semaphore whose permits are waited for. The one that was seen last is the first.
// Unbounded, because waiters need those that are theirs.
#[derive(Debug)]
pub(crate) struct SeenNumbers(Mutex<LruCache<Key, Seen>>);

/// When a number was seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// When the number was there last.
    at: Tick,
    /// When it was first noticed to be gone after that.
    gone_at: Option<Tick>,
}

impl Default for SeenNumbers {
    fn default() -> Self {
        Self(Mutex::new(LruCache::unbounded()))
    }
}

impl SeenNumbers {
    /// A number that somebody waits for was seen.
    pub(crate) fn saw(&self, key: &Key, now: Tick) {
        let seen = Seen {
            at: now,
            gone_at: None,
        };
        let mut by_key = self.0.lock();
        if by_key.put(key.clone(), seen).is_some() {
            return;
        }
        // Two for each new one, so that they become fewer, and each call takes the same time.
        for _ in 0..2 {
            // Waiters ask more often than this, so nobody waits for such a one any more.
            let is_over = |seen: &Seen| now.since(seen.at) >= MAX_SLEEP_WITHOUT_MESSAGE * 4;
            let last = by_key.peek_lru();
            if by_key.len() <= NUMBERS_KEPT || !last.is_some_and(|(_, seen)| is_over(seen)) {
                return;
            }
            by_key.pop_lru();
        }
    }

    /// A number that was seen is gone.
    // `peek`, here and below: only a number that was seen moves to the front.
    pub(crate) fn is_gone(&self, key: &Key, now: Tick) {
        if let Some(seen) = self.0.lock().peek_mut(key) {
            seen.gone_at.get_or_insert(now);
        }
    }

    /// Whether a number was there after this time, as far as is known: until it was noticed to be gone.
    pub(crate) fn was_there_after(&self, key: &Key, since: Tick) -> bool {
        let by_key = self.0.lock();
        let seen = by_key.peek(key);
        seen.is_some_and(|seen| seen.gone_at.unwrap_or(seen.at) > since)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(n: usize) -> Key {
        Key::new("", &n.to_string()).unwrap()
    }

    #[test]
    fn numbers_that_nobody_waits_for_are_forgotten_a_few_at_a_time() {
        let seen = SeenNumbers::default();
        let start = Tick::default();
        for n in 0..3 * NUMBERS_KEPT {
            seen.saw(&key(n), start);
        }
        // They may all be waited for.
        assert_eq!(seen.0.lock().len(), 3 * NUMBERS_KEPT);
        seen.saw(&key(0), start.after(Duration::from_secs(1)));
        let later = start.after(MAX_SLEEP_WITHOUT_MESSAGE * 4);
        for n in 0..NUMBERS_KEPT {
            let before = seen.0.lock().len();
            seen.saw(&key(3 * NUMBERS_KEPT + n), later);
            assert_eq!(seen.0.lock().len(), before - 1);
        }
        let is_kept = |n| seen.was_there_after(&key(n), start);
        assert!(!is_kept(1) && is_kept(0) && is_kept(3 * NUMBERS_KEPT));
    }

    #[test]
    fn number_that_is_gone_is_gone_for_those_who_begin_after_that_was_noticed() {
        let at = |seconds| Tick::default().after(Duration::from_secs(seconds));
        let seen = SeenNumbers::default();
        seen.is_gone(&key(1), at(1));
        assert!(!seen.was_there_after(&key(1), at(0)));
        seen.saw(&key(1), at(2));
        assert!(seen.was_there_after(&key(1), at(1)) && !seen.was_there_after(&key(1), at(2)));
        for noticed in [5, 7, 9] {
            seen.is_gone(&key(1), at(noticed));
            // It began to wait before the number was gone.
            assert!(seen.was_there_after(&key(1), at(4)));
            assert!(!seen.was_there_after(&key(1), at(5)));
        }
        seen.saw(&key(1), at(10));
        assert!(seen.was_there_after(&key(1), at(9)) && !seen.was_there_after(&key(1), at(10)));
    }
}
