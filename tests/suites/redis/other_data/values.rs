//! Every operation of every primitive on values of other programs.

use distlock::test_util::{Answer, Kind};
use distlock::{Error, RwLock};
use distlock_tests::{RedisServer, size};

use super::{Answered, JAVA, KINDS, assert_same, has_number, is_read_write, operations, snapshot};
use crate::redis::client;

/// What a value is to a primitive that does not recognise it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// A value of another type.
    Other,
    /// Text: the number of a semaphore or a latch is one, too.
    Number,
    /// A hash, which a lock takes for one that others hold.
    Hash,
    /// A hash like that of a lock that is not a read/write lock.
    Lock,
}

/// The values under `k`, each by the commands that write it.
fn values() -> Vec<(Seen, Vec<Vec<String>>)> {
    let write = format!("{JAVA}:write");
    let mut hashes: Vec<Vec<&str>> = vec![
        vec!["name", "Ada"],
        vec!["", ""],
        vec!["item:7", "3"],
        vec!["1", "1", "2", "2"],
        vec!["mode", "dark", "credit", "1000"],
        vec!["mode", "read"],
        vec!["mode", "write"],
        vec!["mode", "read", "credit", "1000"],
        vec!["mode", "write", "credit", "1000"],
        vec!["mode", "read", "", "1"],
        vec!["mode", "read", "size", "1764068400000"],
        vec!["mode", "read", "size", "-1", "1", "1e300"],
        vec!["mode", "read", JAVA, "1", "credit", "1000"],
        vec!["mode", "write", &write, "1", "credit", "1000"],
        vec!["mode", "Read", JAVA, "1"],
        vec!["mode", "", JAVA, "1"],
        vec![JAVA, "1", "name", "Ada"],
    ];
    // Almost an owner.
    let odd = [
        &JAVA[..36],
        &JAVA[..37],
        &JAVA[1..],
        "0ddad9e6-60bc-45a5-8797-1987353a907:1",
        "0ddad9e6-60bc-45a5-8797-1987353a90777:1",
        "0ddad9e6-60bc-45a5-8797-1987353a907z:1",
        "0ddad9e6-60bc-45a5-8797-1987353a9077:one",
        "0ddad9e6-60bc-45a5-8797-1987353a9077:1.5",
        "0ddad9e6-60bc-45a5-8797-1987353a9077:1:",
        "0ddad9e6-60bc-45a5-8797-1987353a9077:1: a",
        "0ddad9e6-60bc-45a5-8797-1987353a9077:1 ",
        " 0ddad9e6-60bc-45a5-8797-1987353a9077:1",
        "0ddad9e6-60bc-45a5-8797-1987353a9077;1",
    ];
    hashes.extend(odd.iter().map(|field| vec!["mode", "read", *field, "1"]));
    let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let hash = |fields: &Vec<&str>| {
        (
            Seen::Hash,
            vec![command(&[&["HSET", "k"][..], fields].concat())],
        )
    };
    let mut values: Vec<(Seen, Vec<Vec<String>>)> = hashes.iter().map(hash).collect();
    values.push((Seen::Lock, vec![command(&["HSET", "k", JAVA, "1"])]));
    let texts = ["precious", "", " 7", "7.5", "1e3", "+7", "0x10", "inf"];
    // Integers that Redis or Lua do not count, or that no lock has.
    let integers = [
        "007",
        "-0",
        "-",
        "1000000000000000",
        "9223372036854775807",
        "9223372036854775808",
        "-99999999999999999999",
    ];
    for text in texts.into_iter().chain(integers) {
        values.push((Seen::Other, vec![command(&["SET", "k", text])]));
    }
    for words in [
        &["RPUSH", "k", "precious", "1"][..],
        &["SADD", "k", JAVA, "precious"],
        &["SADD", "k", "1", "2"],
        &["ZADD", "k", "1", JAVA, "inf", "precious"],
        &["XADD", "k", "1-1", "mode", "read"],
        &["PFADD", "k", "a"],
    ] {
        values.push((Seen::Other, vec![command(words)]));
    }
    values.push((Seen::Number, vec![command(&["SET", "k", "7"])]));
    values.extend(large());
    values
}

/// Hashes with many fields, of which only some are looked at.
fn large() -> Vec<(Seen, Vec<Vec<String>>)> {
    let many = size(2_000, 20_000).to_string();
    let fill = "for i = 1, tonumber(ARGV[1]) do redis.call('HSET', KEYS[1], string.format(ARGV[2], i), i) end";
    let mode = |mode: &str| ["HSET", "k", "mode", mode].map(str::to_owned).to_vec();
    let fields = |form: &str| {
        ["EVAL", fill, "1", "k", &many, form]
            .map(str::to_owned)
            .to_vec()
    };
    let owners = "0ddad9e6-60bc-45a5-8797-1987353a9077:%d";
    let sets: [Vec<Vec<String>>; 5] = [
        vec![fields("%d")],
        vec![fields("user:%d"), mode("read")],
        vec![fields("user:%d"), mode("write")],
        vec![fields("user:%d"), fields(owners), mode("read")],
        vec![fields(owners)],
    ];
    sets.map(|commands| (Seen::Hash, commands)).to_vec()
}

/// What each operation answers where the value is not the primitive's own.
#[track_caller]
fn assert_refused(kind: Kind, seen: Seen, operation: &str, answer: &Answered, what: &str) {
    let is_wrong = matches!(answer, Err(Error::WrongType { .. }));
    let is_hash = matches!(seen, Seen::Hash | Seen::Lock);
    let is_fair = matches!(kind, Kind::Fair | Kind::NonReentrantFair);
    let is_expected = match operation {
        "renew" => matches!(answer, Ok(Answer::Renewed(renewed)) if renewed == &[false]),
        "release all" => matches!(answer, Ok(Answer::FreedEach(freed)) if freed == &[false]),
        _ if has_number(kind) => is_wrong,
        "acquire" | "acquire, waiting" | "acquire, nested" | "acquire all" if is_hash => {
            matches!(answer, Ok(Answer::Held(_) | Answer::HeldAt(1 | 0, _)))
        }
        // A fair lock's release has other keys to look at as well, so it says so by itself.
        "release" | "withdraw" if is_hash || is_fair => matches!(answer, Ok(Answer::NotOurs)),
        // Other locks than the read/write lock show owners that they do not know.
        "inspect" if is_hash && !is_read_write(kind) => {
            is_wrong || matches!(answer, Ok(Answer::Holders(holders, _)) if holders.len() <= 16)
        }
        _ => is_wrong,
    };
    assert!(is_expected, "{what}: {operation} answered {answer:?}");
}

#[tokio::test]
async fn no_operation_of_any_primitive_changes_a_byte_of_a_value_that_is_not_its_own() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let mut refused = 0;
    let ttls = [None, Some("1000000")];
    for (value, (seen, commands)) in values().into_iter().enumerate() {
        for (at, kind) in KINDS.into_iter().enumerate() {
            // A number cannot be told from that of another program, and a lock from another lock.
            let is_its_own = match seen {
                Seen::Number => has_number(kind),
                Seen::Lock => !has_number(kind) && !is_read_write(kind),
                _ => false,
            };
            if is_its_own {
                continue;
            }
            // The quick size plays one of four, in turn.
            let quick = match (value + at) % 4 {
                1 => 0..1,
                3 => 1..2,
                _ => 0..0,
            };
            for ttl in &ttls[size(quick, 0..2)] {
                server.cli(&["FLUSHALL"]).await;
                for words in &commands {
                    let words: Vec<&str> = words.iter().map(String::as_str).collect();
                    server.cli(&words).await;
                }
                if let Some(ttl) = ttl {
                    server.cli(&["PEXPIRE", "k", ttl]).await;
                }
                let what = format!("{kind:?} on {commands:?} with TTL {ttl:?}");
                let before = snapshot(&server).await;
                assert_eq!(before.len(), 1, "{what}");
                for (operation, answer) in operations(&client, kind).await {
                    assert_refused(kind, seen, operation, &answer, &what);
                    refused += 1;
                }
                assert_same(&before, &snapshot(&server).await, &what);
            }
        }
    }
    assert!(
        refused > size(1_000, 5_000),
        "{refused} operations were refused"
    );
}

/// What the item of an application was: no lock, whichever way it is asked for.
#[tokio::test]
async fn settings_with_a_mode_outlive_a_read_lock_on_their_key() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    for mode in ["dark", "read", "write"] {
        let fields = ["mode", mode, "credit", "1000"];
        let words = [&["HSET", "settings:7"][..], &fields].concat();
        server.cli(&words).await;
        let before = snapshot(&server).await;
        let lock: RwLock = client.rw_lock("settings:7");
        assert!(lock.read().try_acquire().await.unwrap().is_none());
        assert!(lock.write().try_acquire().await.unwrap().is_none());
        let error = lock.force_release().await.unwrap_err();
        assert!(error.is_permanent(), "{error}");
        assert!(lock.is_locked().await.unwrap_err().is_permanent());
        assert_same(&before, &snapshot(&server).await, mode);
    }
}
