//! What reports tell of data that this crate has not written: that of Redisson, and that of other programs.

use distlock::{Client, ForceRelease, Primitive};
use distlock_tests::{RedisServer, eventually_eq};
use redis::AsyncCommands;
use uuid::Uuid;

use crate::redis::{SOON, client};

/// Redisson's ids have version 4.
const JAVA: Uuid = Uuid::from_u128(0x0dda_d9e6_60bc_45a5_8797_1987_353a_9077);

#[tokio::test]
async fn values_of_other_programs_are_no_locks_and_a_scan_leaves_them_out() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let owner = format!("{JAVA}:1");
    let long = "1".repeat(5_000);
    for words in [
        vec!["HSET", "other:hash", "name", "Ada"],
        vec!["HSET", "other:half", &owner, "1", "name", "Ada"],
        vec!["HSET", "other:count", &owner, "many"],
        vec!["SET", "other:text", "12 apples"],
        vec!["SET", "other:long", &long],
        vec!["SET", "other:empty", ""],
        vec!["RPUSH", "other:list", "1"],
        vec!["SADD", "other:set", "1"],
        vec!["ZADD", "other:sorted", "1", "1"],
        vec!["XADD", "other:stream", "*", "a", "1"],
    ] {
        server.cli(&words).await;
        let key = words[1];
        let report = client.inspect(key).await.unwrap();
        assert_eq!(report.primitive, Primitive::OtherData, "{report:?}");
        assert!(!report.is_held() && report.permits.is_none() && report.count.is_none());
    }
    server.cli(&["SET", "other:number", "7"]).await;
    let (mut scan, mut found) = (client.scan("other:*"), Vec::new());
    while let Some(page) = scan.next_page().await.unwrap() {
        found.extend(
            page.into_iter()
                .map(|report| (report.key, report.primitive)),
        );
    }
    assert_eq!(found, [("other:number".to_owned(), Primitive::Number)]);
}

#[tokio::test]
async fn scan_that_skips_numbers_runs_no_script_for_the_keys_of_other_programs() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let guard = client.lock("job").acquire().await.unwrap();
    server.cli(&["DEBUG", "POPULATE", "3000", "text"]).await;
    for n in 0..50 {
        server.cli(&["SET", &format!("count:{n}"), "7"]).await;
        server.cli(&["RPUSH", &format!("list:{n}"), "7"]).await;
    }
    for (skips, scripts) in [(true, 1), (false, 3_051)] {
        server.cli(&["CONFIG", "RESETSTAT"]).await;
        let mut scan = client.scan("*").page_size(500);
        if skips {
            scan = scan.skip_numbers();
        }
        let mut found = Vec::new();
        while let Some(page) = scan.next_page().await.unwrap() {
            found.extend(page.into_iter().map(|report| report.primitive));
        }
        let locks = found.iter().filter(|found| **found == Primitive::Lock);
        assert_eq!(
            (locks.count(), found.len()),
            (1, if skips { 1 } else { 51 })
        );
        // The server may tell a key on two pages. Lists are not told at all.
        assert!(
            (3_051..3_200).contains(&scan.looked_at()),
            "{}",
            scan.looked_at()
        );
        let calls = server.command_calls("evalsha").await + server.command_calls("eval").await;
        // The watchdog may renew the lock meanwhile, and a script may be new to the server.
        assert!((scripts..scripts + 150).contains(&calls), "{calls}");
        if skips {
            assert!(calls < 10, "{calls}");
        }
    }
    guard.release().await.unwrap();
}

/// A key that moves, or rights that are missing, make the look dearer, and hide nothing.
#[tokio::test]
async fn scan_that_skips_numbers_without_the_right_to_count_listeners_still_finds_permits() {
    let server = RedisServer::builder().without_default_user().start().await;
    let mut rights = distlock_tests::rights::of(distlock_tests::rights::LOCKS);
    rights.extend(distlock_tests::rights::of("looks at locks"));
    rights.extend(distlock_tests::rights::of("semaphore, count-down latch"));
    rights.retain(|right| *right != "+pubsub|numsub");
    server.set_user("shop", &rights).await;
    let url = format!(
        "redis://shop:{}@{}",
        distlock_tests::rights::PASSWORD,
        server.addr()
    );
    let client = Client::builder().connect(&url).await.unwrap();
    let pool = client.semaphore("shop:pool");
    pool.try_set_permits(2).await.unwrap();
    let permit = pool.acquire().await.unwrap();
    let (mut scan, mut found) = (client.scan("shop:*").skip_numbers(), Vec::new());
    while let Some(page) = scan.next_page().await.unwrap() {
        found.extend(page.into_iter().map(|report| report.key));
    }
    assert_eq!(found, ["shop:pool"]);
    permit.release().await.unwrap();
}

/// Each of them made a look at all keys fail.
#[tokio::test]
async fn odd_data_beside_some_locks_hides_no_lock_from_a_scan() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let owner = "6ba7b810-9dad-11d1-80b4-00c04fd430c8:7";
    let mut guards = Vec::new();
    for key in ["infinite", "other", "plain"] {
        guards.push(client.lock(key).acquire().await.unwrap());
    }
    for words in [
        ["RPUSH", "redisson_lock_queue:{infinite}", owner].as_slice(),
        &["ZADD", "redisson_lock_timeout:{infinite}", "inf", owner],
        &["RPUSH", "redisson_lock_queue:{other}", owner],
        &["SET", "redisson_lock_timeout:{other}", "odd"],
        &["SET", "{other}:distlock_waiters", "odd"],
        &["SET", "pool", "1"],
        &["HSET", "{pool}:distlock_owners", owner, "odd"],
        &["SET", "seats", "1"],
        &["ZADD", "{seats}:timeout", "inf", "0123456789abcdef"],
    ] {
        server.cli(words).await;
    }
    let (mut scan, mut found) = (client.scan("*"), Vec::new());
    while let Some(page) = scan.next_page().await.unwrap() {
        found.extend(page.into_iter().map(|report| report.key));
    }
    found.sort();
    assert_eq!(found, ["infinite", "other", "plain", "pool", "seats"]);
    let report = client.inspect("infinite").await.unwrap();
    assert_eq!(report.primitive, Primitive::FairLock);
    assert_eq!(report.waiters[0].owner, owner);
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn data_of_another_type_beside_a_lock_does_not_hide_the_lock() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let _guard = client.lock("k").acquire().await.unwrap();
    for key in [
        "redisson_lock_queue:{k}",
        "redisson_lock_timeout:{k}",
        "{k}:timeout",
        "{k}:distlock_owners",
    ] {
        server.cli(&["SET", key, "odd"]).await;
    }
    server
        .cli(&["RPUSH", "redisson_lock_token:{k}", "odd"])
        .await;
    let report = client.inspect("k").await.unwrap();
    assert_eq!(
        (report.primitive, report.holder_total),
        (Primitive::Lock, 1)
    );
}

#[tokio::test]
async fn primitives_of_redisson_are_reported() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let (one, two) = (format!("{JAVA}:17"), format!("{JAVA}:18"));
    let write = format!("{one}:write");
    let (reader, later) = (format!("{{rw}}:{one}:rwlock_timeout:1"), "99999999999999");
    for words in [
        vec!["HSET", "lock", &one, "2"],
        vec!["PEXPIRE", "lock", "30000"],
        vec!["HSET", "fair", &one, "1"],
        vec!["RPUSH", "redisson_lock_queue:{fair}", &two, "dead"],
        vec![
            "ZADD",
            "redisson_lock_timeout:{fair}",
            later,
            &two,
            "1",
            "dead",
        ],
        vec!["HSET", "rw", "mode", "read", &one, "1", &two, "1"],
        vec!["SET", &reader, "1", "PX", "10000"],
        vec!["HSET", "writer", "mode", "write", &write, "1"],
        vec!["SET", "seats", "3"],
        vec![
            "ZADD",
            "{seats}:timeout",
            "922337203685477",
            "0123456789abcdef",
        ],
        vec!["ZADD", "{seats}:timeout", "1", "ended ended ende"],
        vec!["INCR", "redisson_lock_token:{fenced}"],
        vec!["HSET", "fenced", &one, "1"],
    ] {
        server.cli(&words).await;
    }
    let report = client.inspect("lock").await.unwrap();
    let holder = &report.holders[0];
    assert_eq!((report.primitive, holder.count), (Primitive::Lock, 2));
    assert_eq!(
        (holder.owner.as_str(), holder.client_id()),
        (one.as_str(), Some(JAVA))
    );
    assert!(holder.client.is_none() && report.missing_rights.is_empty());

    let report = client.inspect("fair").await.unwrap();
    let waiting: Vec<&str> = report
        .waiters
        .iter()
        .map(|one| one.owner.as_str())
        .collect();
    assert_eq!(
        (report.primitive, report.waiter_total),
        (Primitive::FairLock, 1)
    );
    assert_eq!(waiting, [two.as_str()]);

    let report = client.inspect("rw").await.unwrap();
    assert_eq!(
        (report.primitive, report.holder_total),
        (Primitive::ReadLock, 1)
    );
    assert_eq!(
        report.holders[0].owner, one,
        "the other one's timeout has ended"
    );

    let report = client.inspect("writer").await.unwrap();
    assert_eq!(
        (report.primitive, report.holder_total),
        (Primitive::WriteLock, 1)
    );
    assert_eq!(report.holders[0].lease_left, None);

    let report = client.inspect("seats").await.unwrap();
    let permits = report.permits.unwrap();
    assert_eq!((permits.free, permits.taken), (4, 1));
    assert_eq!(report.primitive, Primitive::ExpirableSemaphore);
    assert_eq!(report.holders[0].lease_left, None, "a permanent permit");

    let report = client.inspect("fenced").await.unwrap();
    assert_eq!(
        (report.primitive, report.fencing_token),
        (Primitive::FencedLock, Some(1))
    );
}

#[tokio::test]
async fn client_is_listed_with_its_name_and_id_and_one_of_redisson_is_found_by_an_id_in_its_name() {
    let server = RedisServer::start().await;
    let builder = Client::builder().name("orders-7f9c");
    let client = builder.connect(&server.url()).await.unwrap();
    let _guard = client.lock("ours").acquire().await.unwrap();
    let names: Vec<String> = server
        .client_list()
        .await
        .iter()
        .map(|line| line.field("name").to_owned())
        .collect();
    assert!(
        names.contains(&format!("orders-7f9c:{}", client.id())),
        "{names:?}"
    );

    let java = redis::Client::open(server.url()).unwrap();
    let mut java = java.get_multiplexed_async_connection().await.unwrap();
    let owner = format!("{JAVA}:17");
    let _: () = java.hset("java", &owner, 1).await.unwrap();
    let named = format!("billing/{JAVA}");
    let mut name = redis::cmd("CLIENT");
    let _: () = name
        .arg("SETNAME")
        .arg(&named)
        .query_async(&mut java)
        .await
        .unwrap();
    let report = client.inspect("java").await.unwrap();
    let found = report.holders[0].client.as_ref().unwrap();
    assert_eq!(found.name, named);
    assert!(found.address.starts_with("127.0.0.1:"), "{found:?}");
    // Without its connection it has no name any more.
    drop(java);
    eventually_eq(SOON, "the name", None, || async {
        let report = client.inspect("java").await.unwrap();
        report.holders[0].client.clone()
    })
    .await;
}

#[tokio::test]
async fn many_holders_are_counted_and_the_first_thousand_listed() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let mut words = vec!["HSET".to_owned(), "k".to_owned()];
    for number in 0..5_000 {
        words.extend([format!("{JAVA}:{number}"), "1".to_owned()]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    server.cli(&words).await;
    let report = client.inspect("k").await.unwrap();
    assert_eq!(
        (report.primitive, report.holder_total),
        (Primitive::Lock, 5_000)
    );
    let listed = report.holders.len();
    assert!((900..=1_000).contains(&listed), "{listed} holders");
}

/// A reply has a part of the fields of a large hash. Which part, the server decides by a seed of its process.
#[tokio::test]
async fn read_lock_of_thousands_of_readers_is_one_also_if_its_mode_is_not_among_the_first_fields() {
    let add_readers = "redis.call('HSET', KEYS[1], 'mode', 'read')
        for n = 1, 8000 do
          redis.call('HSET', KEYS[1], ARGV[1] .. ':' .. n, '1')
          redis.call('SET', '{k}:' .. ARGV[1] .. ':' .. n .. ':rwlock_timeout:1', '1', 'PX', 600000)
        end";
    for _ in 0..100 {
        let server = RedisServer::start().await;
        let java = JAVA.to_string();
        server.cli(&["EVAL", add_readers, "1", "k", &java]).await;
        let scan = ["HSCAN", "k", "0", "COUNT", "1000"];
        let (_, first): (String, Vec<String>) = server.try_cli(&scan).await.unwrap();
        if first.contains(&"mode".to_owned()) {
            continue;
        }
        let client = client(&server).await;
        let report = client.inspect("k").await.unwrap();
        assert_eq!(report.primitive, Primitive::ReadLock);
        assert_eq!(report.holder_total, 8_000);
        let freed = client.force_release(&report).await.unwrap();
        assert_eq!(freed, ForceRelease::Freed);
        return;
    }
    panic!("the mode was always among the first fields");
}

#[tokio::test]
async fn key_that_is_no_text_is_listed_as_unreadable_with_its_bytes() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let _guard = client.lock("b:lock").acquire().await.unwrap();
    let mut connection = server.connection().await;
    for name in [&b"b:\xff"[..], b"b:\xfe"] {
        let _: () = connection.hset(name, "name", "Ada").await.unwrap();
    }
    let (mut scan, mut found) = (client.scan("b:*"), Vec::new());
    while let Some(page) = scan.next_page().await.unwrap() {
        found.extend(page);
    }
    let keys: Vec<_> = found.iter().map(|report| &*report.key).collect();
    assert_eq!(keys, ["b:%FE", "b:%FF", "b:lock"]);
    assert_eq!(found[0].primitive, Primitive::Unreadable);
    let fault = found[0].fault.as_deref().unwrap();
    assert!(fault.contains("not UTF-8"), "{fault}");
}
