//! What a scan of the server finds under a pattern.

use distlock::{Client, Error, KeyReport, Primitive};
use distlock_tests::faults::{Fault, Op};

use super::report::holders;
use crate::conformance::stage::Stage;

on_every_backend! {
    scan_finds_each_key_under_its_pattern_once_and_no_key_beside_a_primitive,
    scan_that_skips_numbers_finds_locks_first_and_of_numbers_those_in_use,
    scan_of_a_pattern_that_matches_nothing_ends_without_a_key,
    pattern_does_not_reach_beyond_the_prefix_of_the_client,
    key_that_cannot_be_read_is_reported_and_hides_no_other,
    page_size_out_of_range_is_refused,
}

on_threads! { scan_finds_each_key_under_its_pattern_once_and_no_key_beside_a_primitive }

/// All reports under a pattern, page by page.
async fn scanned(client: &Client, pattern: &str, page_size: u32) -> Vec<KeyReport> {
    let (mut scan, mut found) = (client.scan(pattern).page_size(page_size), Vec::new());
    while let Some(page) = scan.next_page().await.unwrap() {
        found.extend(page);
    }
    assert!(scan.next_page().await.unwrap().is_none(), "after the end");
    found
}

async fn scan_that_skips_numbers_finds_locks_first_and_of_numbers_those_in_use(stage: &Stage) {
    let client = stage.client().await;
    for key in ["a unused", "pool", "{pool}:x", "waited"] {
        let semaphore = client.semaphore(key);
        semaphore.try_set_permits(1).await.unwrap();
    }
    let permit = client.semaphore("pool").acquire().await.unwrap();
    let tagged = client.semaphore("{pool}:x").acquire().await.unwrap();
    for key in ["b unused", "seats"] {
        let seats = client.expirable_semaphore(key);
        seats.try_set_permits(1).await.unwrap();
    }
    let seat = client.expirable_semaphore("seats").acquire().await.unwrap();
    let guard = client.lock("z").acquire().await.unwrap();
    let two = client.semaphore("waited").acquire_many(2);
    let waiter = tokio::spawn(two.into_future());
    let latch = client.count_down_latch("awaited");
    latch.try_set_count(1).await.unwrap();
    let latch_waiter = tokio::spawn(async move { latch.wait().await });
    stage
        .eventually("listeners", stage.lease(), async || {
            let listeners = async |key| client.inspect(key).await.unwrap().listeners;
            listeners("waited").await == Some(1) && listeners("awaited").await == Some(1)
        })
        .await;

    for page_size in [1, 1_000] {
        let mut scan = client.scan("*").skip_numbers().page_size(page_size);
        let mut found = Vec::new();
        while let Some(page) = scan.next_page().await.unwrap() {
            for report in page {
                // The server may tell a key on two pages.
                let one = (report.key, report.primitive);
                if !found.contains(&one) {
                    found.push(one);
                }
            }
        }
        assert_eq!(found.remove(0), ("z".to_owned(), Primitive::Lock));
        found.sort_unstable_by(|one, two| one.0.cmp(&two.0));
        let expected = [
            ("awaited", Primitive::CountDownLatch),
            ("pool", Primitive::Semaphore),
            ("seats", Primitive::ExpirableSemaphore),
            ("waited", Primitive::Semaphore),
            ("{pool}:x", Primitive::Semaphore),
        ];
        let expected = expected.map(|(key, primitive)| (key.to_owned(), primitive));
        assert_eq!(found, expected, "in pages of {page_size}");
        // All of them, and nothing beside them but the lists of owners.
        assert!((8..=16).contains(&scan.looked_at()), "{}", scan.looked_at());
    }
    assert_eq!(scanned(&client, "* unused", 1_000).await.len(), 2);
    waiter.abort();
    latch_waiter.abort();
    for held in [permit, tagged] {
        held.release().await.unwrap();
    }
    seat.release().await.unwrap();
    guard.release().await.unwrap();
    for key in ["a unused", "pool", "{pool}:x", "waited"] {
        assert!(client.semaphore(key).delete().await.unwrap());
    }
    for key in ["b unused", "seats"] {
        assert!(client.expirable_semaphore(key).delete().await.unwrap());
    }
    let latch = client.count_down_latch("awaited");
    assert!(latch.delete().await.unwrap());
}

async fn scan_finds_each_key_under_its_pattern_once_and_no_key_beside_a_primitive(stage: &Stage) {
    let client = stage.client_with(|builder| builder.name("orders-1")).await;
    let (mut guards, mut expected) = (Vec::new(), Vec::new());
    for n in 0..40 {
        let key = format!("order:{n:02}");
        guards.push(client.lock(&key).acquire().await.unwrap());
        expected.push((key, Primitive::Lock));
    }
    let other = client.lock("stock:7").acquire().await.unwrap();
    let fenced = client.fenced_lock("order:fenced").acquire().await.unwrap();
    let read = client
        .rw_lock("order:{read}:lock")
        .read()
        .acquire()
        .await
        .unwrap();
    let pool = client.semaphore("order:{pool}");
    pool.try_set_permits(2).await.unwrap();
    let permit = pool.acquire().await.unwrap();
    let seats = client.expirable_semaphore("order:{seats}");
    seats.try_set_permits(2).await.unwrap();
    let seat = seats.acquire().await.unwrap();
    expected.extend([
        ("order:fenced".to_owned(), Primitive::FencedLock),
        ("order:{read}:lock".to_owned(), Primitive::ReadLock),
        ("order:{pool}".to_owned(), Primitive::Semaphore),
        ("order:{seats}".to_owned(), Primitive::ExpirableSemaphore),
    ]);
    expected.sort_unstable_by(|one, two| one.0.cmp(&two.0));
    for (pattern, page_size) in [("order:*", 7), ("order:*", 1_000), ("o[q-s]der?*", 100)] {
        let reports = scanned(&client, pattern, page_size).await;
        let mut found: Vec<_> = reports
            .iter()
            .map(|report| (report.key.clone(), report.primitive))
            .collect();
        found.sort_unstable_by(|one, two| one.0.cmp(&two.0));
        // The server may tell a key on two pages.
        found.dedup();
        assert_eq!(found, expected, "{pattern} in pages of {page_size}");
        let locks = reports
            .iter()
            .filter(|report| report.primitive == Primitive::Lock);
        for lock in locks {
            assert_eq!(holders(lock), ["orders-1"], "{lock:?}");
        }
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    other.release().await.unwrap();
    fenced.release().await.unwrap();
    read.release().await.unwrap();
    permit.release().await.unwrap();
    seat.release().await.unwrap();
    pool.delete().await.unwrap();
    seats.delete().await.unwrap();
}

async fn scan_of_a_pattern_that_matches_nothing_ends_without_a_key(stage: &Stage) {
    let client = stage.client().await;
    let guard = client.lock("order:42").acquire().await.unwrap();
    for pattern in [
        "stock:*",
        "",
        "order",
        "order:4",
        r"order:4\*",
        "[x]rder:42",
    ] {
        let found = scanned(&client, pattern, 10).await;
        assert!(found.is_empty(), "{pattern:?}: {found:?}");
    }
    assert_eq!(scanned(&client, "order:42", 10).await.len(), 1);
    guard.release().await.unwrap();
}

async fn pattern_does_not_reach_beyond_the_prefix_of_the_client(stage: &Stage) {
    let prefix = stage.prefix().to_owned();
    let odd = format!("{prefix}a[*]?:");
    let inner = stage.client_with(|builder| builder.key_prefix(&odd)).await;
    let outer = stage.client().await;
    let guards = [
        inner.lock("k").acquire().await.unwrap(),
        outer.lock("ab*x:k").acquire().await.unwrap(),
        outer.lock("k").acquire().await.unwrap(),
    ];
    let found = scanned(&inner, "*", 10).await;
    let keys: Vec<&str> = found.iter().map(|report| report.key.as_str()).collect();
    assert_eq!(keys, ["k"]);
    assert_eq!(found[0].holders[0].owner, guards[0].owner().to_string());
    assert_eq!(scanned(&outer, "*", 10).await.len(), 3);
    for guard in guards {
        guard.release().await.unwrap();
    }
}

async fn key_that_cannot_be_read_is_reported_and_hides_no_other(stage: &Stage) {
    let (client, looking) = (stage.client().await, stage.faulty_client().await);
    let keys = ["a", "b", "c"];
    let guard = client.multi_lock(keys).acquire().await.unwrap();
    // Which question asks for a key and not for a page depends on the servers: the first one that does is garbled.
    let mut passed = 0;
    let mut found = loop {
        assert!(passed < 12, "no key is asked for");
        passed += 1;
        for _ in 0..passed {
            stage.faults().pass(Op::Inspect);
        }
        stage.faults().next(Op::Inspect, Fault::Garbled);
        let (mut scan, mut found) = (looking.scan("*").page_size(10), Vec::new());
        let ended = loop {
            match scan.next_page().await {
                Ok(Some(page)) => found.extend(page),
                Ok(None) => break Ok(found),
                Err(page) => break Err(page),
            }
        };
        match ended {
            Ok(found) => break found,
            Err(page) => assert!(matches!(page, Error::Protocol { .. }), "{page}"),
        }
        stage.faults().clear(Op::Inspect);
    };
    found.sort_by(|one, other| one.key.cmp(&other.key));
    let named: Vec<_> = found.iter().map(|report| report.key.as_str()).collect();
    assert_eq!(named, keys);
    for report in &found {
        let expected = match report.fault {
            Some(_) => Primitive::Unreadable,
            None => Primitive::Lock,
        };
        assert_eq!(report.primitive, expected, "{report:?}");
    }
    let unreadable = found.iter().filter(|report| report.fault.is_some());
    assert_eq!(unreadable.count(), 1, "{found:?}");
    // An answer that is missing says nothing of a key.
    stage.faults().pass(Op::Inspect);
    stage.faults().next(Op::Inspect, Fault::FailBefore);
    let mut scan = looking.scan("*");
    let missing = loop {
        match scan.next_page().await {
            // Of a node without keys.
            Ok(page) => assert_eq!(page.map(|page| page.len()), Some(0)),
            Err(missing) => break missing,
        }
    };
    assert!(missing.is_unavailable(), "{missing}");
    guard.release().await.unwrap();
}

async fn page_size_out_of_range_is_refused(stage: &Stage) {
    let client = stage.client().await;
    for page_size in [0, 10_001] {
        let mut scan = client.scan("*").page_size(page_size);
        let refused = scan.next_page().await.unwrap_err();
        assert!(matches!(refused, Error::InvalidConfig { .. }), "{refused}");
        assert!(
            refused.to_string().contains(&page_size.to_string()),
            "{refused}"
        );
    }
}
