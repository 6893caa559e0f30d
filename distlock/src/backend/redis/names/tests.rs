use super::one_slot::beside;
use super::*;
use crate::backend::redis::slot::hashed_part;
use crate::resource::kind::Kind;

#[test]
fn name_of_the_permits_means_each_semaphore_that_has_them() {
    for key in ["seats", "{shop}:seats", "{seats}", "a{b"] {
        let permits = permits(key);
        let meant: Vec<_> = holding(&permits).collect();
        assert!(meant.contains(&key), "{permits} is {meant:?}");
    }
    assert_eq!(holding("seats").collect::<Vec<_>>(), ["seats"]);
}

#[test]
fn only_channels_of_semaphores_have_counts() {
    let lock = "redisson_lock__channel:{k}";
    let semaphore = "redisson_sc:{k}";
    for payload in ["0", "1"] {
        assert!(is_message(lock, payload.as_bytes()) && is_message(semaphore, payload.as_bytes()));
    }
    for payload in ["2", "2147483647"] {
        assert!(!is_message(lock, payload.as_bytes()) && is_message(semaphore, payload.as_bytes()));
    }
    for payload in [
        "",
        "-1",
        "+2",
        "2.0",
        "1e3",
        "2 ",
        "two",
        "99999999999999999999",
    ] {
        assert!(
            !is_message(lock, payload.as_bytes()) && !is_message(semaphore, payload.as_bytes())
        );
    }
}

#[test]
fn a_name_is_wrapped_unless_it_has_a_brace() {
    for (name, channel) in [
        ("order:42", "redisson_lock__channel:{order:42}"),
        ("{cart:1}:lock", "redisson_lock__channel:{cart:1}:lock"),
        ("a{b", "redisson_lock__channel:a{b"),
        ("a}b", "redisson_lock__channel:{a}b}"),
    ] {
        assert_eq!(lock_channel(name), channel);
    }
}

#[test]
fn names_of_a_read_write_lock_are_redissons_and_two_of_our_own() {
    assert_eq!(rw_channel("k"), "redisson_rwlock:{k}");
    assert_eq!(rw_stem("k"), "{k}:");
    assert_eq!(rw_turn("k"), "{k}:rwlock_turn");
    assert_eq!(rw_mark("k"), "{k}:rwlock_readers_wait");
    assert_eq!(rw_channel("{c}:k"), "redisson_rwlock:{c}:k");
    assert_eq!(rw_stem("{c}:k"), "{c}:k:");
    assert_eq!(rw_turn("{c}:k"), "{c}:k:tagged:rwlock_turn");
    assert_eq!(rw_mark("{c}:k"), "{c}:k:tagged:rwlock_readers_wait");
}

#[test]
fn every_name_beside_a_key_belongs_to_it_and_the_key_does_not() {
    use crate::backend::side_keys::{belongs_to_another, is_reserved};
    use Kind::*;
    for name in [
        "order:42",
        "{cart:1}:lock",
        "a{b",
        "request",
        "order:timeout",
    ] {
        assert!(!belongs_to_another(name), "{name:?}");
        for kind in [
            Fenced,
            Fair,
            Read,
            Semaphore,
            ExpirableSemaphore,
            CountDownLatch,
        ] {
            let keys = beside(kind, name).into_iter();
            let is_channel = |name: &String| {
                [
                    "redisson_lock__channel",
                    "redisson_rwlock",
                    "redisson_sc",
                    "redisson_countdownlatch",
                ]
                .iter()
                .any(|channel| name.starts_with(channel))
            };
            for key in keys.filter(|name| !is_channel(name)) {
                assert!(belongs_to_another(&key), "{kind:?} {key:?}");
                // As a lock has it in Redisson as well.
                let is_permits = key == permits(name);
                assert!(is_reserved(&key) || is_permits, "{kind:?} {key:?}");
            }
        }
    }
}

#[test]
fn names_that_are_ours_alone_differ_for_a_key_and_the_same_key_in_braces() {
    type Own = fn(&str) -> String;
    let own: [Own; 6] = [
        rw_turn,
        rw_mark,
        semaphore_owners,
        latch_opened,
        |name| mark(name, "id:7"),
        |name| ended(name, "id:7"),
    ];
    for name in ["q", "a}b", "x:tagged", "}"] {
        let braced = format!("{{{name}}}");
        for own in own {
            assert_ne!(own(name), own(&braced), "{name}");
        }
    }
    for own in own {
        assert_eq!(hashed_part(&own("q")), hashed_part(&own("{q}")));
    }
    // It belongs to the queue, which Redisson has under one name.
    assert_eq!(fair_queue("q"), fair_queue("{q}"));
    assert_eq!(fair_ours("q"), fair_ours("{q}"));
}

#[test]
fn a_latch_wraps_its_channel_always_and_a_mark_lies_beside_its_number() {
    assert_eq!(semaphore_channel("pool"), "redisson_sc:{pool}");
    assert_eq!(semaphore_channel("{a}:b"), "redisson_sc:{a}:b");
    for (name, channel) in [
        ("jobs", "redisson_countdownlatch__channel__{jobs}"),
        ("{a}:b", "redisson_countdownlatch__channel__{{a}:b}"),
    ] {
        assert_eq!(latch_channel(name), channel);
    }
    assert_eq!(mark("pool", "id:7"), "{pool}:id:7:request");
    assert_eq!(mark("{a}:b", "id:7"), "{a}:b:tagged:id:7:request");
    assert_eq!(ended("pool", "id:7"), "{pool}:id:7:ended");
    assert_eq!(ended("{a}:b", "id:7"), "{a}:b:tagged:id:7:ended");
    assert_eq!(semaphore_owners("pool"), "{pool}:distlock_owners");
    assert_eq!(semaphore_owners("{pool}"), "{pool}:tagged:distlock_owners");
    assert_eq!(latch_opened("jobs"), "{jobs}:distlock_opened");
    assert_eq!(latch_opened("{jobs}"), "{jobs}:tagged:distlock_opened");
}
