use super::*;

fn at(port: u16) -> Address {
    Address::Tcp {
        host: "127.0.0.1".to_owned(),
        port,
    }
}

/// The servers 1 and 2, and three Sentinels that name the first one, which is the master.
struct Service {
    named: MasterName,
    now: Instant,
}

impl Service {
    /// Nobody has named a server yet.
    fn new() -> Self {
        Self {
            named: MasterName::default(),
            now: Instant::now(),
        }
    }

    fn settled() -> Self {
        let mut service = Self::new();
        service.all_name(1);
        assert!(service.found(1));
        service
    }

    fn all_name(&mut self, server: u16) {
        for sentinel in 11..14 {
            self.note(sentinel, server);
        }
    }

    fn note(&mut self, sentinel: u16, server: u16) {
        self.named.note(&at(sentinel), &at(server), self.now);
    }

    fn found(&mut self, server: u16) -> bool {
        self.named.found(&at(server), self.now) != Claim::Refused
    }

    /// A message of a Sentinel.
    fn hears(&mut self, sentinel: u16, [old, new]: [u16; 2]) -> Option<Address> {
        self.named.told(&at(sentinel), &at(new), self.now);
        self.named.switch_to(&at(new), Some(&at(old)), self.now)
    }
}

#[test]
fn server_that_was_left_counts_only_if_most_sentinels_name_it() {
    let mut service = Service::settled();
    assert_eq!(service.hears(11, [1, 2]), Some(at(1)));
    service.note(12, 2);
    assert!(!service.found(1) && service.named.master().is_none());
    assert!(service.found(2));
    // It is the master again, and no message about it has come.
    service.note(11, 1);
    assert!(!service.found(1));
    service.note(12, 1);
    assert!(service.found(1));
    assert_eq!(service.named.master(), Some(&at(1)));
}

#[test]
fn sentinels_that_have_not_heard_of_the_new_master_bring_nobody_back_to_the_old_one() {
    let mut service = Service::settled();
    assert_eq!(service.hears(11, [1, 2]), Some(at(1)));
    // Asked again, and still the same.
    service.note(12, 1);
    service.note(13, 1);
    assert!(!service.found(1));
    // The Sentinel that knew of the new one is gone, and the others have given up on it.
    service.now += SENTINELS_AGREE_AFTER;
    assert!(service.found(1));
}

#[test]
fn answer_from_before_a_message_does_not_count_for_a_client_that_knows_no_master_yet() {
    let mut service = Service::new();
    service.all_name(1);
    assert_eq!(service.hears(11, [1, 2]), None);
    assert!(!service.found(1));
    assert!(service.found(2));
}

#[test]
fn answer_of_a_sentinel_from_before_its_own_message_does_not_count() {
    let mut service = Service::settled();
    let sentinel = at(11);
    let before = service.named.messages(&sentinel);
    assert_eq!(service.hears(11, [1, 2]), Some(at(1)));
    let answered = |service: &mut Service, messages| {
        let named = &mut service.named;
        named.answered(&sentinel, &at(1), messages, service.now);
    };
    answered(&mut service, before);
    assert!(!service.found(1));
    // It is asked again, and has gone back.
    let after = service.named.messages(&sentinel);
    answered(&mut service, after);
    assert!(service.found(1));
}

#[test]
fn server_that_is_found_first_is_no_master_if_most_sentinels_name_another_one_by_then() {
    let mut service = Service::new();
    let may_be = |service: &Service, server| service.named.may_be_master(&at(server), service.now);
    // It was cut off with an earlier master, and answers first.
    service.note(11, 1);
    assert!(may_be(&service, 1));
    service.note(12, 2);
    assert!(may_be(&service, 1) && may_be(&service, 2));
    service.note(13, 2);
    assert!(!service.found(1));
    assert!(service.found(2));
}

#[test]
fn message_counts_as_what_its_sentinel_names() {
    let mut service = Service::settled();
    assert_eq!(service.hears(11, [1, 2]), Some(at(1)));
    // They come while the client finds out whether the first one is the master.
    assert_eq!(service.hears(12, [1, 2]), None);
    assert_eq!(service.hears(13, [1, 2]), None);
    service.now += SENTINELS_AGREE_AFTER;
    assert!(!service.found(1));
}

#[test]
fn sentinel_that_is_known_by_two_names_has_one_vote() {
    let mut service = Service::settled();
    let here = SocketAddr::from(([127, 0, 0, 1], 13));
    for name in [13, 14] {
        service.note(name, 1);
        service.named.reached(&at(name), Some(here));
    }
    // One of two, though by two names of three.
    service.named.forget(&at(12));
    service.note(13, 2);
    service.note(14, 2);
    assert!(!service.found(2));
    // Two of three, of which one was asked by one of its names only.
    service.note(12, 2);
    service.note(14, 1);
    assert!(!service.found(2));
    service.note(14, 2);
    assert!(service.found(2));
}

#[test]
fn sentinel_that_is_forgotten_has_no_vote() {
    let mut service = Service::settled();
    assert_eq!(service.hears(11, [1, 2]), Some(at(1)));
    service.all_name(2);
    service.note(11, 1);
    // One of three names the server that was left.
    assert!(!service.found(1));
    service.named.forget(&at(12));
    service.named.forget(&at(13));
    assert!(service.found(1));
}

#[test]
fn name_that_leads_to_another_sentinel_lends_it_no_vote_of_the_former_one() {
    let mut service = Service::settled();
    let [first, second] = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 26379)));
    service.named.reached(&at(11), Some(first));
    assert_eq!(service.hears(11, [1, 2]), Some(at(1)));
    assert!(service.found(2));
    service.named.forget(&at(12));
    service.named.forget(&at(13));
    // This one has not heard of the new master.
    service.named.reached(&at(11), Some(second));
    service.note(11, 1);
    assert!(!service.found(1));
}

#[test]
fn sentinels_that_are_not_asked_any_more_count_until_a_restarted_one_knows_them_again() {
    let mut service = Service::settled();
    assert_eq!(service.hears(11, [1, 2]), Some(at(1)));
    service.all_name(2);
    assert!(service.found(2));
    service.now += SENTINELS_AGREE_AFTER;
    // Its name leads to another one.
    for sentinel in [12, 13] {
        service.named.stop_asking(&at(sentinel), service.now);
    }
    service.note(11, 1);
    assert!(!service.found(1));
    assert!(service.named.counts_those_not_asked(service.now));
    // It has named one of them, which is asked again.
    service.note(12, 2);
    service.now += SENTINELS_AGREE_AFTER;
    assert!(!service.named.counts_those_not_asked(service.now));
    assert!(!service.found(1));
    // The set is another one.
    service.named.stop_asking(&at(12), service.now);
    service.now += SENTINELS_AGREE_AFTER;
    assert!(service.found(1));
    service.note(11, 1);
    assert_eq!(service.named.by.len(), 1);
}

#[test]
fn sentinel_that_is_silent_has_its_vote_until_it_counts_as_gone() {
    let mut service = Service::settled();
    assert_eq!(service.hears(11, [1, 2]), Some(at(1)));
    service.all_name(2);
    service.note(11, 1);
    service.now += SENTINELS_AGREE_AFTER;
    for sentinel in [12, 13] {
        service.named.silent(&at(sentinel), service.now);
    }
    assert!(!service.found(1));
    // One has answered meanwhile.
    service.note(12, 2);
    service
        .named
        .silent(&at(12), service.now + SENTINELS_AGREE_AFTER);
    service.now += SENTINEL_GONE_AFTER;
    assert!(!service.found(1));
    service.now += SENTINELS_AGREE_AFTER;
    assert!(service.found(1));
}

#[test]
fn first_sentinel_that_answers_after_all_were_silent_does_not_decide_alone() {
    let mut service = Service::settled();
    assert_eq!(service.hears(11, [1, 2]), Some(at(1)));
    service.note(12, 2);
    assert!(service.found(2));
    // It was cut off together with the old master.
    service.note(13, 1);
    for sentinel in 11..14 {
        service.named.silent(&at(sentinel), service.now);
    }
    service.now += SENTINEL_GONE_AFTER;
    service.note(13, 1);
    assert!(!service.found(1));
    // The others stay away from then on.
    service.now += SENTINEL_GONE_AFTER;
    assert!(service.found(1));
}

#[test]
fn search_that_finds_another_master_leaves_the_one_before_as_a_message_does() {
    let mut service = Service::settled();
    service.note(11, 2);
    service.note(12, 2);
    let left = Some(at(1));
    let now = service.now;
    assert_eq!(service.named.found(&at(2), now), Claim::Accepted { left });
    // One Sentinel has not heard of it, and a search asks it.
    service.note(13, 1);
    assert!(!service.found(1));
    service.now += SENTINELS_AGREE_AFTER;
    assert!(!service.found(1));
    // The message comes late.
    assert_eq!(service.hears(11, [1, 2]), None);
    assert_eq!(service.named.master(), Some(&at(2)));
    assert_eq!(
        service.named.found(&at(2), service.now),
        Claim::Accepted { left: None }
    );
}

#[test]
fn sentinel_that_is_outvoted_brings_no_client_to_the_server_that_it_names() {
    let mut service = Service::settled();
    service.note(13, 2);
    assert!(!service.found(2));
    service.now += SENTINELS_AGREE_AFTER + SENTINEL_GONE_AFTER;
    assert!(!service.found(2));
    assert_eq!(service.named.master(), Some(&at(1)));
    // A failover whose messages were missed.
    service.note(12, 2);
    assert!(service.found(2));
}

#[test]
fn sentinel_that_is_left_alone_is_believed_when_the_others_count_as_gone() {
    let mut service = Service::settled();
    service.named.forget(&at(13));
    service.named.silent(&at(12), service.now);
    service.note(11, 2);
    assert!(!service.found(2));
    service.now += SENTINEL_GONE_AFTER;
    assert!(service.found(2));
}

#[test]
fn message_that_comes_late_leaves_nothing() {
    let mut service = Service::settled();
    assert_eq!(service.hears(11, [1, 2]), Some(at(1)));
    // Before connections were made to the new one.
    assert_eq!(service.hears(12, [1, 2]), None);
    assert!(service.found(2));
    assert_eq!(service.hears(13, [1, 2]), None);
    assert_eq!(service.named.master(), Some(&at(2)));
}

#[test]
fn message_about_the_server_that_was_left_lets_it_back() {
    let mut service = Service::settled();
    assert_eq!(service.hears(11, [1, 2]), Some(at(1)));
    service.all_name(2);
    assert_eq!(service.hears(12, [2, 1]), None);
    assert!(service.found(1));
}

#[test]
fn message_about_the_server_that_was_left_leaves_its_successor() {
    let mut service = Service::settled();
    assert_eq!(service.hears(11, [1, 2]), Some(at(1)));
    service.all_name(2);
    assert!(service.found(2));
    assert_eq!(service.hears(12, [2, 1]), Some(at(2)));
    assert!(service.found(1));
}
