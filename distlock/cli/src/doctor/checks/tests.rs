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
    assert_eq!(persistence(&failed).verdict, Verdict::Bad);
    let replica = info(&[("role", "slave")]);
    assert_eq!(
        replicas(&replica, ServerLayout::Single).verdict,
        Verdict::Bad
    );
    let alone = info(&[("role", "master"), ("connected_slaves", "0")]);
    assert_eq!(
        replicas(&alone, ServerLayout::Sentinel).verdict,
        Verdict::Warn
    );
}

#[test]
fn server_that_refuses_writes_after_a_failed_snapshot_or_without_replicas_is_bad() {
    for aof in ["0", "1"] {
        let failed = info(&[
            ("aof_enabled", aof),
            ("aof_last_write_status", "ok"),
            ("rdb_last_bgsave_status", "err"),
        ]);
        let found = persistence(&failed);
        assert_eq!(found.verdict, Verdict::Bad, "{found:?}");
        assert!(found.advice.contains("MISCONF"), "{found:?}");
    }
    let master = ("role", "master");
    let lonely = info(&[master, ("min_slaves_good_slaves", "0")]);
    let found = replicas(&lonely, ServerLayout::Single);
    assert_eq!(found.verdict, Verdict::Bad, "{found:?}");
    assert!(found.advice.contains("NOREPLICAS"), "{found:?}");
    let followed = [
        master,
        ("min_slaves_good_slaves", "1"),
        ("connected_slaves", "1"),
    ];
    let found = replicas(&info(&followed), ServerLayout::Single);
    assert_eq!(found.verdict, Verdict::Ok, "{found:?}");
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
