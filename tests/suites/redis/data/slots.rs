//! In which slot of a cluster the names of each primitive lie: all in the key's, or one of its scripts would be refused.
//!
//! Seen by MONITOR, so also what is there for a moment only, and what a script names by itself.

use std::collections::BTreeSet;
use std::pin::Pin;

use distlock::Client;
use distlock::test_util::{self, Sizes};
use distlock_tests::{LockKind, RedisServer, eventually_eq};
use futures_util::{Stream, StreamExt};
use tokio::time::timeout;

use crate::redis::{SOON, client, ms};

/// CRC16 as a cluster has it, which is XMODEM's.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

/// Of what stands between the first `{` and the first `}` after it, if anything does; else of the whole name.
fn slot(name: &[u8]) -> u16 {
    let position = |bytes: &[u8], brace| bytes.iter().position(|byte| *byte == brace);
    let tag = position(name, b'{').and_then(|open| {
        let rest = &name[open + 1..];
        position(rest, b'}').map(|close| &rest[..close])
    });
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(name)) % 16_384
}

/// Known answers: of the algorithm's own description, and of servers.
#[test]
fn slots_are_those_that_a_server_computes() {
    assert_eq!(crc16(b"123456789"), 0x31c3);
    for (name, expected) in [
        ("foo", 12_182),
        ("{foo}:bar", 12_182),
        ("{user1000}.following", slot(b"user1000")),
        ("foo{}{bar}", 8_363),
        ("foo{{bar}}zap", slot(b"{bar")),
        ("foo{bar}{zap}", slot(b"bar")),
    ] {
        assert_eq!(slot(name.as_bytes()), expected, "{name}");
    }
}

const PLAIN: &[&str] = &[
    "k",
    "order:42",
    "a b  c",
    "über:straße 注文",
    "line\nbreak",
    "*?[x]",
    "redisson_lock__channel:k",
];

/// The MONITOR of Valkey does not escape them, so the words of its lines cannot be told apart.
const QUOTED: &str = "\"quoted\" \\";

/// With a hash tag, which Redisson keeps; only the channel of a latch it wraps all the same, and so takes it elsewhere.
const TAGGED: &[&str] = &[
    "{cart:1}:lock",
    "tail:{cart:1}",
    "a{b}c",
    "{a}{b}",
    "a{b}}",
    "x{y{z}}",
    "{カート}:1",
];

/// Braces that make no tag, or one only in a name that is wrapped. Redisson itself puts channels and further keys of
/// these elsewhere; its names are ours, so they break here, too. (Of a latch `a{b` and `{` only our own mark does.)
const BROKEN: &[&str] = &["a{b", "a}b", "{}x", "{", "}", "}{"];

/// A primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Exclusive(LockKind),
    Read,
    Semaphore,
    Permits,
    Latch,
}

const WHAT: &[What] = &[
    What::Exclusive(LockKind::Reentrant),
    What::Exclusive(LockKind::NonReentrant),
    What::Exclusive(LockKind::Spin),
    What::Exclusive(LockKind::Fenced),
    What::Exclusive(LockKind::Fair),
    What::Exclusive(LockKind::NonReentrantFair),
    What::Exclusive(LockKind::Write),
    What::Read,
    What::Semaphore,
    What::Permits,
    What::Latch,
];

/// All keys and channels that a server is asked for.
struct Watch {
    commands: Pin<Box<dyn Stream<Item = String>>>,
    names: BTreeSet<Vec<u8>>,
}

impl Watch {
    async fn on(server: &RedisServer) -> Self {
        let monitor = server.client().get_async_monitor().await.unwrap();
        Self {
            commands: Box::pin(monitor.into_on_message()),
            names: BTreeSet::new(),
        }
    }

    /// Looks on until this command comes, and includes it.
    async fn until(&mut self, command: &str) {
        loop {
            let line = timeout(SOON, self.commands.next()).await.expect(command);
            let words = words(&line.unwrap());
            let verb = String::from_utf8_lossy(&words[0]).to_uppercase();
            let names = match verb.as_str() {
                "EVAL" | "EVALSHA" => {
                    let keys = std::str::from_utf8(&words[2]).unwrap();
                    &words[3..3 + keys.parse::<usize>().unwrap()]
                }
                "DEL" | "SUBSCRIBE" => &words[1..],
                // An unsubscription does not use the channel, and may come at any time.
                "HELLO" | "CLIENT" | "INFO" | "PING" | "ECHO" | "TIME" | "UNSUBSCRIBE" => &[],
                _ => &words[1..2],
            };
            self.names.extend(names.iter().cloned());
            if verb == command {
                return;
            }
        }
    }

    /// What was used since the last time.
    async fn names(&mut self, server: &RedisServer) -> BTreeSet<Vec<u8>> {
        server.cli(&["ECHO", "end"]).await;
        self.until("ECHO").await;
        std::mem::take(&mut self.names)
    }
}

/// The words of a line of MONITOR, without their quotes and escapes.
fn words(line: &str) -> Vec<Vec<u8>> {
    let (mut words, mut inside) = (Vec::new(), false);
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        match (byte, inside) {
            (b'"', false) => words.push(Vec::new()),
            (_, false) => continue,
            (b'"', true) => {}
            (b'\\', true) => {
                let word = words.last_mut().unwrap();
                word.push(match bytes.next().unwrap() {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'x' => {
                        let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                        u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                    }
                    other => other,
                });
            }
            (other, true) => words.last_mut().unwrap().push(other),
        }
        if byte == b'"' {
            inside = !inside;
        }
    }
    words
}

/// Has it, waits for it, gives it to one that waits, looks at it and ends it by force.
async fn live(what: What, name: &str, one: &Client, two: &Client, watch: &mut Watch) {
    match what {
        What::Exclusive(of) => {
            let (lock, other) = (of.lock(one, name), of.lock(two, name));
            let guard = lock.acquire(None, None).await.unwrap();
            let waiter = tokio::spawn(async move { other.acquire(None, None).await });
            match of {
                LockKind::Spin => tokio::time::sleep(ms(5)).await,
                _ => watch.until("SUBSCRIBE").await,
            }
            lock.holders().await.unwrap();
            guard.release().await.unwrap();
            let guard = timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
            guard.release().await.unwrap();
            lock.force_release().await.unwrap();
        }
        What::Read => {
            let (lock, other) = (one.rw_lock(name), two.rw_lock(name));
            let guard = lock.write().acquire().await.unwrap();
            let waiter = tokio::spawn(other.read().acquire().into_future());
            watch.until("SUBSCRIBE").await;
            guard.release().await.unwrap();
            let guard = timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
            other.read().holders().await.unwrap();
            guard.release().await.unwrap();
            other.force_release().await.unwrap();
        }
        What::Semaphore => {
            let pool = one.semaphore(name);
            pool.try_set_permits(1).await.unwrap();
            let permit = pool.acquire().await.unwrap();
            let waiter = tokio::spawn(two.semaphore(name).acquire().into_future());
            watch.until("SUBSCRIBE").await;
            permit.release().await.unwrap();
            let permit = timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
            permit.release().await.unwrap();
            pool.delete().await.unwrap();
        }
        What::Permits => {
            let seats = one.expirable_semaphore(name);
            seats.try_set_permits(1).await.unwrap();
            let permit = seats.acquire().await.unwrap();
            let waiter = tokio::spawn(two.expirable_semaphore(name).acquire().into_future());
            watch.until("SUBSCRIBE").await;
            permit.release().await.unwrap();
            let permit = timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
            seats.remaining_lease(permit.id()).await.unwrap();
            let id = permit.into_id().unwrap();
            seats.release(id).await.unwrap();
            seats.delete().await.unwrap();
        }
        What::Latch => {
            let latch = one.count_down_latch(name);
            latch.try_set_count(1).await.unwrap();
            let waiter = tokio::spawn(two.count_down_latch(name).wait().into_future());
            watch.until("SUBSCRIBE").await;
            latch.count_down().await.unwrap();
            timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
            latch.delete().await.unwrap();
        }
    }
}

#[tokio::test]
async fn names_of_every_primitive_lie_in_the_slot_of_its_key() {
    let server = RedisServer::start().await;
    let mut watch = Watch::on(&server).await;
    let mut seen = 0;
    let mut names = [PLAIN, TAGGED, BROKEN].concat();
    if server.info("server").await.contains_key("valkey_version") {
        println!("the name {QUOTED:?} is left out, since the MONITOR of Valkey does not escape it");
    } else {
        names.push(QUOTED);
    }
    for name in names {
        for what in WHAT.iter().copied() {
            let (one, two) = (client(&server).await, client(&server).await);
            live(what, name, &one, &two, &mut watch).await;
            for client in [one, two] {
                // But channels, which are listened to for a while.
                let rest = || async {
                    let mut sizes = test_util::sizes(&client);
                    sizes.channels = 0;
                    sizes
                };
                eventually_eq(SOON, "what is kept", Sizes::default(), rest).await;
            }
            let names = watch.names(&server).await;
            assert!(
                names.contains(name.as_bytes()),
                "{what:?} {name:?}: {names:?}"
            );
            seen += names.len();
            let elsewhere: Vec<_> = names
                .iter()
                .filter(|one| slot(one) != slot(name.as_bytes()))
                .map(|one| String::from_utf8_lossy(one))
                .collect();
            let is_known = BROKEN.contains(&name) || what == What::Latch && TAGGED.contains(&name);
            assert_eq!(
                !elsewhere.is_empty(),
                is_known,
                "{what:?} {name:?}: {elsewhere:?}"
            );
            if what == What::Latch && TAGGED.contains(&name) {
                let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
                assert_eq!(elsewhere, [channel]);
            }
        }
    }
    println!("{seen} keys and channels");
}
