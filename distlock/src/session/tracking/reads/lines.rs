//! What waits for a place at its server. Plain data: a server that does not answer keeps its own places and no others.

use std::collections::{BTreeMap, VecDeque};

use crate::config::RENEWALS_AT_ONCE;

/// The lines of all servers, each by the number of its server.
#[derive(Debug)]
pub(super) struct Lines<B>(BTreeMap<u32, Line<B>>);

#[derive(Debug)]
struct Line<B> {
    waiting: VecDeque<B>,
    under_way: usize,
}

impl<B> Default for Lines<B> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<B> Default for Line<B> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            under_way: 0,
        }
    }
}

impl<B> Lines<B> {
    pub(super) fn add(&mut self, server: u32, batch: B) {
        self.0.entry(server).or_default().waiting.push_back(batch);
    }

    /// The next batch that has a place, which it takes, and the number of its server.
    pub(super) fn next(&mut self) -> Option<(u32, B)> {
        for (server, line) in &mut self.0 {
            if line.under_way < RENEWALS_AT_ONCE
                && let Some(batch) = line.waiting.pop_front()
            {
                line.under_way += 1;
                return Some((*server, batch));
            }
        }
        None
    }

    /// A batch has left its place at this server.
    pub(super) fn answered(&mut self, server: u32) {
        let Some(line) = self.0.get_mut(&server) else {
            return;
        };
        line.under_way = line.under_way.saturating_sub(1);
        if line.under_way == 0 && line.waiting.is_empty() {
            self.0.remove(&server);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_that_does_not_answer_takes_no_place_of_another_one() {
        let mut lines = Lines::default();
        for batch in 0..3 * RENEWALS_AT_ONCE {
            lines.add(1, batch);
        }
        for batch in 0..RENEWALS_AT_ONCE {
            assert_eq!(lines.next(), Some((1, batch)));
        }
        assert_eq!(lines.next(), None);
        lines.add(2, 7);
        assert_eq!(lines.next(), Some((2, 7)));
        lines.answered(2);
        assert_eq!(lines.next(), None);
        lines.answered(1);
        assert_eq!(lines.next(), Some((1, RENEWALS_AT_ONCE)));
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn server_to_which_nothing_is_under_way_is_forgotten() {
        let mut lines = Lines::default();
        lines.add(1, ());
        lines.add(2, ());
        while let Some((server, ())) = lines.next() {
            lines.answered(server);
        }
        assert!(lines.0.is_empty());
    }
}
