//! The highest fencing tokens that a client has seen.

use lru::LruCache;

use crate::config::TOKENS_KEPT;
use crate::resource::key::Key;
use crate::sync::Mutex;

/// The highest token of each key, of the keys that were used last.
// Unbounded, because a bounded one allocates memory for all its entries at once, and few clients use fenced locks.
#[derive(Debug)]
pub(crate) struct SeenTokens(Mutex<LruCache<Key, u64>>);

impl Default for SeenTokens {
    fn default() -> Self {
        Self(Mutex::new(LruCache::unbounded()))
    }
}

impl SeenTokens {
    /// The highest token that was seen for a key; 0 if none was seen, or if it was forgotten since.
    pub(crate) fn highest(&self, key: &Key) -> u64 {
        self.0.lock().get(key).copied().unwrap_or(0)
    }

    pub(crate) fn saw(&self, key: &Key, token: u64) {
        let mut by_key = self.0.lock();
        let highest = by_key.get_or_insert_mut(key.clone(), || token);
        // Two grants may be noticed in another order than they were made.
        *highest = token.max(*highest);
        if by_key.len() > TOKENS_KEPT {
            by_key.pop_lru();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_the_keys_used_last_are_kept() {
        let key = |n: usize| Key::new("", &n.to_string()).unwrap();
        let seen = SeenTokens::default();
        for n in 0..TOKENS_KEPT {
            seen.saw(&key(n), 7);
        }
        seen.saw(&key(0), 5);
        seen.saw(&key(TOKENS_KEPT), 7);
        assert_eq!((seen.highest(&key(0)), seen.highest(&key(1))), (7, 0));
        assert_eq!(seen.highest(&key(TOKENS_KEPT)), 7);
        assert_eq!(seen.0.lock().len(), TOKENS_KEPT);
    }

    /// The size of this process's data in bytes, also of what was allocated and never written to.
    #[cfg(target_os = "linux")]
    fn allocated() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let data = status.lines().find_map(|line| line.strip_prefix("VmData:"));
        let kilobytes = data.and_then(|text| text.split_whitespace().next());
        kilobytes.unwrap().parse::<usize>().unwrap() * 1024
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn clients_that_use_no_fenced_lock_allocate_nothing_for_tokens() {
        let before = allocated();
        let clients: Vec<_> = (0..2_000).map(|_| crate::Client::in_memory()).collect();
        let grown = allocated().saturating_sub(before);
        // With room for all tokens each of them would take 139 kB. The bound leaves room for the tests beside this one.
        assert!(grown / clients.len() < 70_000, "grown by {grown} bytes");
    }
}
