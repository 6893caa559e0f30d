//! What the Sentinels of a service have said of its master, without any connection.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use tokio::time::Instant;

use crate::backend::redis::connection::Address;
use crate::config::{SENTINEL_GONE_AFTER, SENTINELS_AGREE_AFTER};

/// What the Sentinels of a service have said of its master.
#[derive(Debug, Default)]
pub(super) struct MasterName {
    /// Where connections are made to.
    master: Option<Address>,
    /// The last master, which was left for another one.
    left: Option<Left>,
    /// The server that each Sentinel named last.
    by: HashMap<Address, Address>,
    /// How often each Sentinel has said unasked that another server is the master.
    messages: HashMap<Address, u64>,
    /// Where each Sentinel was reached. One that the URL names by its host, and the others by its IP address, is known twice.
    reached: HashMap<Address, SocketAddr>,
    /// Since when those have not answered that are silent.
    silent_since: HashMap<Address, Instant>,
    /// When the client stopped asking those whose votes still count; see [`stop_asking`](MasterName::stop_asking).
    not_asked_since: HashMap<Address, Instant>,
}

/// What becomes of a server that says that it is the master.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It was left, or would replace another one, and too few Sentinels name it.
    Refused,
    /// It is the master. `left`: the server that connections were made to before, if that was another one.
    Accepted { left: Option<Address> },
}

/// A server that is not the master any more.
#[derive(Debug)]
struct Left {
    server: Address,
    at: Instant,
    /// The Sentinels that have named another server since.
    heard_by: HashSet<Address>,
}

impl MasterName {
    /// Where connections are made to.
    pub(super) fn master(&self) -> Option<&Address> {
        self.master.as_ref()
    }

    /// How many messages of a Sentinel have come before it is asked.
    pub(super) fn messages(&self, sentinel: &Address) -> u64 {
        self.messages.get(sentinel).copied().unwrap_or_default()
    }

    /// Records the server that a Sentinel names in a message.
    pub(super) fn told(&mut self, sentinel: &Address, server: &Address, now: Instant) {
        *self.messages.entry(sentinel.clone()).or_default() += 1;
        self.note(sentinel, server, now);
    }

    /// Records the server that a Sentinel names in an answer. `messages`: how many messages of it had arrived when it was asked. If more
    /// have arrived since, the answer does not count, because a message is at least as new.
    pub(super) fn answered(
        &mut self,
        sentinel: &Address,
        server: &Address,
        messages: u64,
        now: Instant,
    ) {
        if self.messages(sentinel) == messages {
            self.note(sentinel, server, now);
        }
    }

    /// Records the server that a Sentinel names.
    fn note(&mut self, sentinel: &Address, server: &Address, now: Instant) {
        self.forget_those_not_asked(now);
        self.not_asked_since.remove(sentinel);
        let are_all_silent = self.by.keys().all(|one| {
            self.silent_since.contains_key(one) || self.not_asked_since.contains_key(one)
        });
        if are_all_silent {
            // Until now the client may have been cut off itself. The time of the others counts from here, so that the first one that
            // answers does not decide alone.
            self.silent_since
                .values_mut()
                .for_each(|since| *since = now);
        }
        self.by.insert(sentinel.clone(), server.clone());
        self.silent_since.remove(sentinel);
        if let Some(left) = &mut self.left
            && left.server != *server
        {
            left.heard_by.insert(sentinel.clone());
        }
    }

    /// A Sentinel answers at this address. It is `None` for a Unix socket.
    pub(super) fn reached(&mut self, sentinel: &Address, at: Option<SocketAddr>) {
        let before = match at {
            Some(at) => self.reached.insert(sentinel.clone(), at),
            None => self.reached.remove(sentinel),
        };
        if before.is_some() && before != at {
            // Another Sentinel answers under this name. What the former one has said is not its word.
            self.by.remove(sentinel);
            if let Some(left) = &mut self.left {
                left.heard_by.remove(sentinel);
            }
        }
    }

    /// A Sentinel is gone, or does not know the service: what it said last does not count any more.
    pub(super) fn forget(&mut self, sentinel: &Address) {
        self.by.remove(sentinel);
        self.messages.remove(sentinel);
        self.reached.remove(sentinel);
        self.silent_since.remove(sentinel);
        self.not_asked_since.remove(sentinel);
    }

    /// The client asks a Sentinel no more, because the name of another one leads elsewhere and this one may belong to another set.
    ///
    /// What it said last counts for some time. The Sentinel that answers under the name now may be one of the same set that was
    /// restarted and names an earlier master. It learns of the others within this time, and does not decide alone until then.
    pub(super) fn stop_asking(&mut self, sentinel: &Address, now: Instant) {
        if self.by.contains_key(sentinel) {
            self.not_asked_since.insert(sentinel.clone(), now);
        }
    }

    /// Whether Sentinels count that the client asks no more.
    pub(super) fn counts_those_not_asked(&self, now: Instant) -> bool {
        let mut not_asked = self.not_asked_since.values();
        not_asked.any(|since| !is_over(*since, now))
    }

    fn forget_those_not_asked(&mut self, now: Instant) {
        let over = self.not_asked_since.iter();
        let over = over.filter(|(_, since)| is_over(**since, now));
        let over: Vec<_> = over.map(|(sentinel, _)| sentinel.clone()).collect();
        for sentinel in over {
            self.forget(&sentinel);
        }
    }

    /// A Sentinel does not answer. If that lasts, what it said last does not count: those that are gone would outvote those that have
    /// replaced them. For a moment it counts: those that are cut off could outvote the others. The time counts while another one answers.
    pub(super) fn silent(&mut self, sentinel: &Address, now: Instant) {
        if self.by.contains_key(sentinel) {
            self.silent_since.entry(sentinel.clone()).or_insert(now);
        }
    }

    fn is_gone(&self, sentinel: &Address, now: Instant) -> bool {
        let silent = self.silent_since.get(sentinel);
        let not_asked = self.not_asked_since.get(sentinel);
        silent.is_some_and(|since| now.duration_since(*since) >= SENTINEL_GONE_AFTER)
            || not_asked.is_some_and(|since| is_over(*since, now))
    }

    /// Whether a server counts as the master if it says that it is one.
    ///
    /// While connections are made to a master, more than half of the Sentinels that are not gone have to name another one: a
    /// Sentinel that was cut off may still name an earlier master. Only a [message](MasterName::switch_to) needs no others.
    ///
    /// While connections are made to none, the first one counts, unless more than half of the Sentinels that have answered by then
    /// name others.
    ///
    /// A server that was left goes on saying that it is the master for seconds. The Sentinels hear of the new one after each
    /// other, and go on naming the old one until then, so for some time only those count that have named another one in between.
    /// More than half of those have to name it.
    pub(super) fn may_be_master(&self, server: &Address, now: Instant) -> bool {
        let is_left = self
            .left
            .as_ref()
            .is_some_and(|left| left.server == *server);
        if !is_left && self.master.as_ref() == Some(server) {
            return true;
        }
        let is_first = !is_left && self.master.is_none();
        let not_agreed = self.left.as_ref().filter(|left| {
            (is_left || is_first) && now.duration_since(left.at) < SENTINELS_AGREE_AFTER
        });
        let has_heard = |sentinel| not_agreed.is_none_or(|left| left.heard_by.contains(sentinel));
        let counted = self
            .by
            .iter()
            .filter(|(sentinel, _)| !self.is_gone(sentinel, now) && has_heard(*sentinel));
        // One vote for each Sentinel. One that is known twice may have been asked at two times, and names the server in both or not.
        let mut votes = HashMap::new();
        for (sentinel, named) in counted {
            let voter = self.reached.get(sentinel).ok_or(sentinel);
            *votes.entry(voter).or_insert(true) &= named == server;
        }
        let names = votes.values().filter(|names| **names).count();
        let others = votes.len() - names;
        names > others || is_first && names == others
    }

    /// A server has said that it is the master. Connections are made to it from now on, if it counts.
    pub(super) fn found(&mut self, server: &Address, now: Instant) -> Claim {
        if !self.may_be_master(server, now) {
            return Claim::Refused;
        }
        self.let_back(server);
        // A search may be the first to come upon another master: no message about it has arrived yet.
        let left = self.switch_to(server, None, now);
        self.master = Some(server.clone());
        Claim::Accepted { left }
    }

    /// A Sentinel has said that this server is the master from now on, instead of another one. Returns the server that is
    /// left for it, if connections were made to another one.
    pub(super) fn switch_to(
        &mut self,
        server: &Address,
        instead_of: Option<&Address>,
        now: Instant,
    ) -> Option<Address> {
        if self.master.as_ref() == Some(server) {
            return None;
        }
        self.let_back(server);
        let master = self.master.take();
        // While connections are made to none: what was asked before this message may still answer for the old one.
        let left = match &self.left {
            None => master.as_ref().or(instead_of),
            Some(_) => master.as_ref(),
        };
        if let Some(left) = left {
            let heard_by = self.by.iter().filter(|(_, named)| *named != left);
            self.left = Some(Left {
                server: left.clone(),
                at: now,
                heard_by: heard_by.map(|(sentinel, _)| sentinel.clone()).collect(),
            });
        }
        master
    }

    fn let_back(&mut self, server: &Address) {
        self.left.take_if(|left| left.server == *server);
    }
}

/// Whether the time is over for which a Sentinel counts that the client asks no more.
fn is_over(since: Instant, now: Instant) -> bool {
    now.duration_since(since) >= SENTINELS_AGREE_AFTER
}
