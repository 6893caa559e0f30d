//! Which Sentinels of a service are known, without any connection.
//!
//! # Invariants
//! 1. The Sentinels of the URL stay.
//! 2. A Sentinel that another one has named stays while it answers for the service itself, and while one that answers names it.
//! 3. One is forgotten only by the answer of another, or if the name of one of the URL leads to one that the former one has not
//!    named: those that it has told of may be Sentinels of another set. If none answers, all stay.
//!
//! Sentinels name another one also while it is down, until their operator resets them or it comes back at another address.

use crate::backend::redis::connection::Address;

/// The Sentinels of a service. `S` is what the client has of each.
#[derive(Debug)]
pub(super) struct KnownSentinels<S> {
    entries: Vec<Entry<S>>,
}

#[derive(Debug)]
struct Entry<S> {
    address: Address,
    sentinel: S,
    is_of_url: bool,
    /// The others that it named last.
    others: Vec<Address>,
    /// Whether it answers for the service.
    answers: bool,
}

impl<S> KnownSentinels<S> {
    /// The Sentinels of a URL.
    pub(super) fn new(addresses: Vec<Address>, mut make: impl FnMut(&Address) -> S) -> Self {
        let mut known = Self {
            entries: Vec::new(),
        };
        for address in addresses {
            known.add(address, true, &mut make);
        }
        known
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &S> {
        self.entries.iter().map(|entry| &entry.sentinel)
    }

    /// A Sentinel has named the others. Learns those that are new, and returns those that are forgotten.
    pub(super) fn named(
        &mut self,
        by: &Address,
        others: Vec<Address>,
        mut make: impl FnMut(&Address) -> S,
    ) -> Vec<S> {
        let Some(teller) = self.entries.iter_mut().find(|entry| entry.address == *by) else {
            // It was forgotten while it answered.
            return Vec::new();
        };
        teller.others.clone_from(&others);
        teller.answers = true;
        for other in others {
            self.add(other, false, &mut make);
        }
        let is_named = |address: &Address| {
            let mut answering = self.entries.iter().filter(|entry| entry.answers);
            answering.any(|entry| entry.others.contains(address))
        };
        // Decided for all first, since the question reads the list that is changed below.
        let stays: Vec<bool> = self
            .entries
            .iter()
            .map(|entry| entry.is_of_url || entry.answers || is_named(&entry.address))
            .collect();
        let mut stays = stays.into_iter();
        self.entries
            .extract_if(.., |_| !stays.next().unwrap_or(true))
            .map(|entry| entry.sentinel)
            .collect()
    }

    /// Those of which a Sentinel has told last, also if it does not answer any more.
    pub(super) fn named_by(&self, sentinel: &Address) -> impl Iterator<Item = &S> {
        let teller = self.entries.iter().find(|entry| entry.address == *sentinel);
        let others = teller.map_or(&[][..], |teller| &teller.others);
        let named = self
            .entries
            .iter()
            .filter(|entry| others.contains(&entry.address));
        named.map(|entry| &entry.sentinel)
    }

    /// Forgets those that others have named, and returns them: the name of one of the URL leads elsewhere by now.
    pub(super) fn forget_learned(&mut self) -> Vec<S> {
        let learned = self.entries.extract_if(.., |entry| !entry.is_of_url);
        learned.map(|entry| entry.sentinel).collect()
    }

    /// A Sentinel does not answer, or does not know the service.
    pub(super) fn silent(&mut self, sentinel: &Address) {
        for entry in &mut self.entries {
            if entry.address == *sentinel {
                entry.answers = false;
            }
        }
    }

    fn add(&mut self, address: Address, is_of_url: bool, make: &mut impl FnMut(&Address) -> S) {
        if self.entries.iter().all(|entry| entry.address != address) {
            self.entries.push(Entry {
                sentinel: make(&address),
                address,
                is_of_url,
                others: Vec::new(),
                answers: false,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Address {
        Address::Tcp {
            host: "127.0.0.1".to_owned(),
            port,
        }
    }

    fn port(address: &Address) -> u16 {
        match address {
            Address::Tcp { port, .. } => *port,
            other => panic!("{other}"),
        }
    }

    fn ports(known: &KnownSentinels<u16>) -> Vec<u16> {
        known.all().copied().collect()
    }

    fn of_url(ports: &[u16]) -> KnownSentinels<u16> {
        KnownSentinels::new(ports.iter().copied().map(at).collect(), port)
    }

    fn named(known: &mut KnownSentinels<u16>, by: u16, others: &[u16]) -> Vec<u16> {
        known.named(&at(by), others.iter().copied().map(at).collect(), port)
    }

    #[test]
    fn learned_sentinel_that_nobody_names_and_that_does_not_answer_is_forgotten() {
        let mut known = of_url(&[1]);
        assert!(named(&mut known, 1, &[2, 3]).is_empty());
        assert_eq!(ports(&known), [1, 2, 3]);
        assert!(named(&mut known, 2, &[1, 3]).is_empty());
        assert!(named(&mut known, 3, &[1, 2]).is_empty());
        known.silent(&at(3));
        // The others were reset one after the other.
        assert!(named(&mut known, 1, &[2]).is_empty());
        assert_eq!(named(&mut known, 2, &[1]), [3]);
        assert_eq!(ports(&known), [1, 2]);
        // It is back.
        assert!(named(&mut known, 1, &[2, 3]).is_empty());
        assert_eq!(ports(&known), [1, 2, 3]);
    }

    #[test]
    fn learned_sentinels_are_forgotten_when_the_name_of_one_of_the_url_leads_elsewhere() {
        let mut known = of_url(&[1]);
        assert!(named(&mut known, 1, &[2, 3]).is_empty());
        assert!(named(&mut known, 2, &[1, 3]).is_empty());
        assert_eq!(known.forget_learned(), [2, 3]);
        assert_eq!(ports(&known), [1]);
        assert!(named(&mut known, 1, &[4]).is_empty());
        assert_eq!(ports(&known), [1, 4]);
    }

    #[test]
    fn sentinel_that_does_not_answer_has_named_those_that_it_named_last() {
        let mut known = of_url(&[1]);
        assert!(named(&mut known, 1, &[2, 3]).is_empty());
        assert!(named(&mut known, 2, &[1, 4]).is_empty());
        known.silent(&at(1));
        let mut named_by_first: Vec<_> = known.named_by(&at(1)).copied().collect();
        named_by_first.sort_unstable();
        assert_eq!(named_by_first, [2, 3]);
        assert_eq!(known.named_by(&at(4)).count(), 0);
        assert_eq!(known.named_by(&at(9)).count(), 0);
    }

    #[test]
    fn sentinel_that_answers_for_the_service_stays() {
        let mut known = of_url(&[1]);
        assert!(named(&mut known, 1, &[2]).is_empty());
        assert!(named(&mut known, 2, &[1]).is_empty());
        // A Sentinel that was reset names nobody for some seconds.
        assert!(named(&mut known, 1, &[]).is_empty());
        assert_eq!(ports(&known), [1, 2]);
        known.silent(&at(2));
        assert_eq!(named(&mut known, 1, &[]), [2]);
    }

    #[test]
    fn sentinel_that_is_down_stays_while_one_that_answers_names_it() {
        let mut known = of_url(&[1]);
        assert!(named(&mut known, 1, &[2, 3]).is_empty());
        assert!(named(&mut known, 2, &[1, 3]).is_empty());
        assert!(named(&mut known, 3, &[1, 2]).is_empty());
        known.silent(&at(2));
        assert!(named(&mut known, 3, &[1]).is_empty());
        assert_eq!(ports(&known), [1, 2, 3]);
        // Two that are gone do not keep each other.
        known.silent(&at(3));
        assert_eq!(named(&mut known, 1, &[]), [2, 3]);
    }

    #[test]
    fn sentinels_of_the_url_stay_and_if_none_answers_all_do() {
        let mut known = of_url(&[1, 2]);
        assert!(named(&mut known, 1, &[3]).is_empty());
        for port in 1..4 {
            known.silent(&at(port));
        }
        assert_eq!(ports(&known), [1, 2, 3]);
        assert_eq!(named(&mut known, 1, &[]), [3]);
        assert_eq!(ports(&known), [1, 2]);
        // Its last answer came late.
        assert!(named(&mut known, 3, &[4]).is_empty());
        assert_eq!(ports(&known), [1, 2]);
    }
}
