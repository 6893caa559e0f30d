//! What each fact is taken for.

use super::*;

fn info(fields: &[(&str, &str)]) -> Info {
    let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    fields.iter().map(owned).collect()
}

#[test]
fn keys_are_evicted_only_below_a_limit() {
    let verdict = |limit, policy| {
        eviction(&info(&[("maxmemory", limit), ("maxmemory_policy", policy)])).verdict
    };
    assert_eq!(verdict("0", "noeviction"), Verdict::Ok);
    assert_eq!(verdict("0", "allkeys-lru"), Verdict::Warn);
    assert_eq!(verdict("1000", "volatile-lru"), Verdict::Bad);
    assert_eq!(eviction(&info(&[])).verdict, Verdict::Unknown);
}

#[test]
fn full_memory_failed_writes_and_a_replica_are_told() {
    let full = info(&[("used_memory", "95"), ("maxmemory", "100")]);
    assert_eq!(memory(&full).verdict, Verdict::Warn);
    assert_eq!(memory(&info(&[("maxmemory", "0")])).verdict, Verdict::Ok);
    let failed = info(&[("aof_enabled", "1"), ("aof_last_write_status", "err")]);
    assert_eq!(persistence(&failed, None, Ok(())).verdict, Verdict::Bad);
    let replica = info(&[("role", "slave")]);
    assert_eq!(
        replicas(&replica, None, ServerLayout::Single).verdict,
        Verdict::Bad
    );
    let alone = info(&[("role", "master"), ("connected_slaves", "0")]);
    assert_eq!(
        replicas(&alone, None, ServerLayout::Sentinel).verdict,
        Verdict::Warn
    );
}

#[test]
fn failed_snapshot_is_bad_if_the_server_refuses_a_ping_for_it() {
    let refusal = "MISCONF Redis is configured to save RDB snapshots";
    for aof in ["0", "1"] {
        let failed = info(&[
            ("aof_enabled", aof),
            ("aof_last_write_status", "ok"),
            ("rdb_last_bgsave_status", "err"),
        ]);
        // Without save points, for one, it refuses nothing.
        for (ping, verdict) in [(Ok(()), Verdict::Warn), (Err(refusal), Verdict::Bad)] {
            let found = persistence(&failed, None, ping);
            assert_eq!(found.verdict, verdict, "{found:?}");
            assert!(found.advice.contains("MISCONF"), "{found:?}");
        }
    }
    let after = info(&[("rdb_last_bgsave_status", "ok"), ("aof_enabled", "1")]);
    assert_eq!(persistence(&after, None, Ok(())).verdict, Verdict::Ok);
}

#[test]
fn failed_snapshot_of_a_server_that_answers_no_ping_is_bad_if_it_has_refused_commands() {
    let snapshot = ("rdb_last_bgsave_status", "err");
    let refused = ("errorstat_MISCONF", "count=3");
    let (refuses_none, not_known) = ("It refuses no command", "is not known");
    for (ping, has_refused, verdict, said, unsaid) in [
        // A refusal of earlier is over.
        (Ok(()), true, Verdict::Warn, refuses_none, not_known),
        (
            Err("no answer"),
            false,
            Verdict::Warn,
            not_known,
            refuses_none,
        ),
        (
            Err("no answer"),
            true,
            Verdict::Bad,
            "RESETSTAT",
            refuses_none,
        ),
        (Err("NOPERM"), true, Verdict::Bad, "RESETSTAT", not_known),
    ] {
        let fields = [snapshot, refused];
        let told = info(&fields[..=usize::from(has_refused)]);
        let found = persistence(&told, None, ping);
        assert_eq!(found.verdict, verdict, "{found:?}");
        for text in [said, "MISCONF", "Look at its disk"] {
            assert!(found.advice.contains(text), "{text}: {found:?}");
        }
        assert!(!found.advice.contains(unsaid), "{found:?}");
    }
}

#[test]
fn replicas_that_a_write_needs_are_told_if_none_follows_or_writes_were_refused() {
    let with = |good, refused: &[(&str, &str)]| {
        let master = [
            ("role", "master"),
            ("connected_slaves", good),
            ("min_slaves_good_slaves", good),
        ];
        replicas(
            &info(&[&master, refused].concat()),
            None,
            ServerLayout::Single,
        )
    };
    let refused = [("errorstat_NOREPLICAS", "count=3")];
    for (good, refused, verdict) in [
        ("0", &[] as &[_], Verdict::Bad),
        ("1", &[], Verdict::Ok),
        ("1", &refused, Verdict::Warn),
    ] {
        let found = with(good, refused);
        assert_eq!(found.verdict, verdict, "{found:?}");
        let is_told = found.advice.contains("NOREPLICAS");
        assert_eq!(is_told, verdict != Verdict::Ok, "{found:?}");
    }
}

#[test]
fn replicas_that_a_write_needs_are_compared_with_the_setting_if_it_is_known() {
    let master = info(&[
        ("role", "master"),
        ("connected_slaves", "1"),
        ("min_slaves_good_slaves", "1"),
        ("errorstat_NOREPLICAS", "count=3"),
    ]);
    for (needed, verdict) in [("1", Verdict::Ok), ("2", Verdict::Bad)] {
        let config = info(&[("min-replicas-to-write", needed)]);
        let found = replicas(&master, Some(&config), ServerLayout::Single);
        assert_eq!(found.verdict, verdict, "{found:?}");
    }
}

#[test]
fn flush_of_the_append_only_file_decides_what_a_crash_costs() {
    let is_on = info(&[("aof_enabled", "1"), ("aof_last_write_status", "ok")]);
    let with = |flush| persistence(&is_on, Some(&info(&[("appendfsync", flush)])), Ok(()));
    assert_eq!(with("no").verdict, Verdict::Warn);
    for flush in ["everysec", "always"] {
        let found = with(flush);
        assert_eq!(found.verdict, Verdict::Ok, "{found:?}");
        assert_eq!(found.advice.is_empty(), flush == "always", "{found:?}");
    }
}

#[test]
fn cluster_without_all_slots_is_bad() {
    let with = |served| {
        info(&[
            ("cluster_state", "ok"),
            ("cluster_slots_ok", served),
            ("cluster_size", "3"),
            ("cluster_known_nodes", "6"),
        ])
    };
    let complete = cluster(&with("16384"));
    assert_eq!(complete.verdict, Verdict::Ok);
    assert_eq!(
        complete.value,
        "3 masters among 6 nodes, all slots are served"
    );
    assert_eq!(cluster(&with("16383")).verdict, Verdict::Bad);
}
