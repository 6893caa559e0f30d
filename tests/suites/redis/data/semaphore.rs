//! Keys, values, TTLs and messages of semaphores as Redisson has them, and the marks beside them.

use std::collections::HashMap;
use std::time::Duration;

use distlock::test_util::{Kind, SemaphoreChange, Verbs};
use distlock::{Client, Error, Semaphore};
use distlock_tests::{Pulse, RedisServer, eventually, eventually_eq};
use futures_util::StreamExt;
use tokio::time::{Instant, timeout};

use crate::redis::{SOON, client, ms};

/// Far less than a waiter sleeps that no message wakes.
const AT_ONCE: Duration = ms(3_000);
const OWNERS: &str = "{pool}:distlock_owners";

async fn text(server: &RedisServer, key: &str) -> Option<String> {
    server.try_cli(&["GET", key]).await.unwrap()
}

/// What is said on a channel from now on.
pub(super) struct Heard {
    messages: redis::aio::PubSubStream,
}

impl Heard {
    pub(super) async fn on(server: &RedisServer, channel: &str) -> Self {
        let mut messages = server.client().get_async_pubsub().await.unwrap();
        messages.subscribe(channel).await.unwrap();
        let messages = messages.into_on_message();
        Self { messages }
    }

    /// The next message.
    pub(super) async fn next(&mut self) -> String {
        let message = timeout(SOON, self.messages.next()).await.unwrap().unwrap();
        String::from_utf8(message.get_payload_bytes().to_vec()).unwrap()
    }
}

/// Completes when the server has this many listeners on a channel.
pub(super) async fn listened(server: &RedisServer, channel: &str, listeners: u64) {
    eventually_eq(SOON, "listeners", listeners, || {
        server.pubsub_numsub(channel)
    })
    .await;
}

#[tokio::test]
async fn number_messages_and_marks_are_as_they_should_be() {
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let pool = client.semaphore("pool");
    let mut heard = Heard::on(&server, "redisson_sc:{pool}").await;
    assert!(pool.try_set_permits(3).await.unwrap());
    assert_eq!(text(&server, "pool").await.unwrap(), "3");
    assert_eq!(server.pttl("pool").await, -1);
    assert_eq!(heard.next().await, "3");
    let permits = pool.acquire_many(2).await.unwrap();
    assert_eq!(text(&server, "pool").await.unwrap(), "1");
    let owners = HashMap::from([(permits.owner().to_string(), String::from("2"))]);
    assert_eq!(server.hgetall(OWNERS).await, owners);
    // As long as permits are out.
    assert_eq!(server.pttl(OWNERS).await, -1);
    permits.release().await.unwrap();
    assert_eq!(text(&server, "pool").await.unwrap(), "3");
    assert_eq!(heard.next().await, "3");
    // With the mark of the first request, which went with the next command.
    assert_eq!(server.keys().await, ["pool"]);
    // Redisson says -2 and -1 here, which its own listeners cannot bear.
    assert_eq!(pool.add_permits(-5).await.unwrap(), -2);
    assert_eq!(text(&server, "pool").await.unwrap(), "-2");
    assert_eq!(pool.release_permits(1).await.unwrap(), -1);
    assert_eq!(pool.add_permits(3).await.unwrap(), 2);
    assert_eq!(heard.next().await, "2");
    // Fewer permits than before wake no waiter.
    assert_eq!(pool.add_permits(-1).await.unwrap(), 1);
    assert_eq!(pool.drain_permits().await.unwrap(), 1);
    assert_eq!(text(&server, "pool").await.unwrap(), "0");
    pool.add_permits(17).await.unwrap();
    assert_eq!(heard.next().await, "17");
    // Every key but the number ends by its TTL.
    for key in server.keys().await {
        let left = server.pttl(&key).await;
        assert!(
            key == "pool" || (0..=35_000).contains(&left),
            "{key} {left}"
        );
    }
    assert!(pool.delete().await.unwrap());
    assert_eq!(text(&server, "pool").await, None);
}

/// A client sends a request again for nearly as long.
#[tokio::test]
async fn answers_to_requests_of_each_kind_are_remembered_for_35_seconds_by_default() {
    for kind in [
        Kind::Semaphore,
        Kind::ExpirableSemaphore,
        Kind::CountDownLatch,
    ] {
        let server = RedisServer::start().await;
        let client = Client::connect(&server.url()).await.unwrap();
        let since = Instant::now();
        let is_set = match kind {
            Kind::Semaphore => client.semaphore("k").try_set_permits(3).await,
            Kind::ExpirableSemaphore => client.expirable_semaphore("k").try_set_permits(3).await,
            _ => client.count_down_latch("k").try_set_count(3).await,
        };
        assert!(is_set.unwrap());
        // Removed with the next command.
        let keys = server.keys().await;
        let mark = keys.iter().find(|key| key.ends_with(":request"));
        let left = server.pttl(mark.expect("a mark")).await;
        let left = Duration::from_millis(u64::try_from(left).expect("it ends"));
        let most = Duration::from_secs(35);
        assert!(
            left <= most && left + since.elapsed() >= most - ms(2),
            "{kind:?}: {left:?}"
        );
    }
}

#[tokio::test]
async fn number_fits_what_redisson_reads() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let mut heard = Heard::on(&server, "redisson_sc:{cart:1}:pool").await;
    let pool = client.semaphore("{cart:1}:pool");
    assert!(pool.try_set_permits(i32::MAX as u32).await.unwrap());
    assert_eq!(heard.next().await, "2147483647");
    let error = pool.add_permits(1).await.unwrap_err();
    assert!(matches!(
        error,
        Error::InvalidPermits {
            permits: 2_147_483_648,
            ..
        }
    ));
    assert_eq!(pool.available_permits().await.unwrap(), i64::from(i32::MAX));
    let permit = pool.acquire().await.unwrap();
    assert_eq!(
        server
            .hgetall("{cart:1}:pool:tagged:distlock_owners")
            .await
            .len(),
        1
    );
    permit.release().await.unwrap();
    assert_eq!(heard.next().await, "2147483647");
}

#[tokio::test]
async fn redissons_release_wakes_us_and_its_time_to_live_stays() {
    let pulse = Pulse::start();
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let pool = client.semaphore("pool");
    server.cli(&["SET", "pool", "1", "PX", "600000"]).await;
    let permit = pool.acquire().await.unwrap();
    for (released, said) in [("1", "1"), ("17", "17"), ("2147483647", "2147483647")] {
        let waiting = tokio::spawn(pool.acquire_many(released.parse().unwrap()).into_future());
        listened(&server, "redisson_sc:{pool}", 1).await;
        // Asleep, and asked since it listens.
        tokio::time::sleep(ms(100)).await;
        server.cli(&["INCRBY", "pool", released]).await;
        server.cli(&["PUBLISH", "redisson_sc:{pool}", said]).await;
        let taken = pulse
            .timeout(AT_ONCE, waiting)
            .await
            .expect("woken by the message");
        taken.unwrap().unwrap().forget();
        eventually_eq(SOON, "the number", Some(String::from("0")), || {
            text(&server, "pool")
        })
        .await;
    }
    permit.release().await.unwrap();
    pool.add_permits(2).await.unwrap();
    pool.add_permits(-1).await.unwrap();
    pool.drain_permits().await.unwrap();
    let left = server.pttl("pool").await;
    assert!((500_000..=600_000).contains(&left), "{left}");
}

#[tokio::test]
async fn our_release_wakes_a_waiter_of_another_process_at_once() {
    let pulse = Pulse::start();
    let server = RedisServer::start().await;
    let (one, two) = (client(&server).await, client(&server).await);
    let pool = one.semaphore("pool");
    pool.try_set_permits(2).await.unwrap();
    let permits = pool.acquire_many(2).await.unwrap();
    let wait = |pool: Semaphore| tokio::spawn(pool.acquire().into_future());
    let waiting = [wait(two.semaphore("pool")), wait(two.semaphore("pool"))];
    listened(&server, "redisson_sc:{pool}", 1).await;
    tokio::time::sleep(ms(100)).await;
    permits.release().await.unwrap();
    // One message for two: the first to wake wakes the other.
    for waiting in waiting {
        let permit = pulse
            .timeout(AT_ONCE, waiting)
            .await
            .expect("woken")
            .unwrap();
        permit.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn verbs_sent_twice_leave_what_they_left_once() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let verbs = Verbs::new(&client, client.id()).of_kind(Kind::Semaphore);
    let two = verbs.with_permits(2);
    for twice in 0..2 {
        verbs
            .adjust("pool", 100, SemaphoreChange::TrySet(5))
            .await
            .unwrap();
        verbs
            .adjust("pool", 101, SemaphoreChange::Add(2))
            .await
            .unwrap();
        assert_eq!(text(&server, "pool").await.unwrap(), "7", "{twice}");
    }
    for _ in 0..2 {
        two.attempt("pool", 1, SOON).await.unwrap();
        assert_eq!(text(&server, "pool").await.unwrap(), "5");
    }
    for _ in 0..2 {
        two.release("pool", 1).await.unwrap();
        two.withdraw("pool", 1).await.unwrap();
        two.attempt("pool", 1, SOON).await.unwrap();
        assert_eq!(text(&server, "pool").await.unwrap(), "7");
    }
}

#[tokio::test]
async fn release_to_a_server_that_lost_its_data_is_lost_and_makes_nothing() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let pool = client.semaphore("pool");
    pool.try_set_permits(2).await.unwrap();
    let permit = pool.acquire().await.unwrap();
    server.cli(&["FLUSHALL"]).await;
    assert!(permit.release().await.unwrap_err().is_lost());
    assert_eq!(text(&server, "pool").await, None);
}

#[tokio::test]
async fn answered_requests_leave_no_keys() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let pool = client.semaphore("pool");
    let latch = client.count_down_latch("jobs");
    let seats = client.expirable_semaphore("seats");
    pool.try_set_permits(5).await.unwrap();
    latch.try_set_count(1_000).await.unwrap();
    seats.try_set_permits(5).await.unwrap();
    for round in 0..50 {
        let permits = pool.acquire_many(2).await.unwrap();
        latch.count_down().await.unwrap();
        seats.add_permits(1).await.unwrap();
        drop(pool.acquire().await.unwrap());
        permits.release().await.unwrap();
        pool.add_permits(1).await.unwrap();
        // The three numbers, the permit that was dropped, and the request that was answered last.
        let keys = server.keys().await;
        assert!(keys.len() <= 5, "{round}: {keys:?}");
    }
    assert_eq!(latch.count().await.unwrap(), 950);
    let numbers = || async { server.keys().await == ["jobs", "pool", "seats"] };
    eventually(SOON, "nothing but the numbers", numbers).await;
}

/// A doubtful release whose first copy was carried out long ago, so that even the mark of its end has gone.
#[tokio::test]
async fn release_that_comes_again_after_its_mark_has_gone_gives_nothing_back() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let verbs = Verbs::new(&client, client.id()).of_kind(Kind::Semaphore);
    verbs
        .adjust("pool", 100, SemaphoreChange::TrySet(5))
        .await
        .unwrap();
    verbs.attempt("pool", 1, SOON).await.unwrap();
    verbs.release("pool", 1).await.unwrap();
    let marks = server.keys().await;
    for mark in marks.iter().filter(|key| key.ends_with(":request")) {
        server.cli(&["DEL", mark]).await;
    }
    verbs.release("pool", 1).await.unwrap();
    assert_eq!(text(&server, "pool").await.unwrap(), "5");
}

#[tokio::test]
async fn crashed_holder_leaves_its_permit_taken_as_redissons_does() {
    let server = RedisServer::start().await;
    let other = client(&server).await;
    other.semaphore("pool").try_set_permits(1).await.unwrap();
    let verbs = Verbs::new(&other, uuid::Uuid::from_u128(7)).of_kind(Kind::Semaphore);
    verbs.attempt("pool", 1, ms(300)).await.unwrap();
    assert!(
        other
            .semaphore("pool")
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    tokio::time::sleep(ms(600)).await;
    assert_eq!(text(&server, "pool").await.unwrap(), "0");
    assert_eq!(server.hgetall(OWNERS).await.len(), 1);
    // Nothing is left of it when the semaphore goes.
    assert!(other.semaphore("pool").delete().await.unwrap());
    let keys = server.keys().await;
    assert!(keys.iter().all(|key| key.ends_with(":request")), "{keys:?}");
}

/// No lease would ever free it.
#[tokio::test]
async fn permit_whose_release_is_denied_comes_back_with_the_right() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let pool = client.semaphore("pool");
    pool.try_set_permits(2).await.unwrap();
    let (dropped, told) = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
    let rights = ["ACL", "SETUSER", "default"];
    server
        .cli(&[&rights[..], &["-evalsha", "-eval"]].concat())
        .await;
    drop(dropped);
    let error = told.release().await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error}");
    server
        .cli(&[&rights[..], &["+evalsha", "+eval"]].concat())
        .await;
    let free = || async { text(&server, "pool").await.as_deref() == Some("2") };
    eventually(SOON, "both permits are back", free).await;
}

/// Redisson has one name for both, where it has any. Ours are two.
#[tokio::test]
async fn semaphores_whose_keys_differ_in_braces_keep_their_own_permits() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let (plain, tagged) = (client.semaphore("s"), client.semaphore("{s}"));
    assert!(plain.try_set_permits(2).await.unwrap());
    let permits = plain.acquire_many(2).await.unwrap();
    assert!(tagged.try_set_permits(1).await.unwrap());
    let other = tagged.acquire().await.unwrap();
    assert_eq!(server.hgetall("{s}:distlock_owners").await.len(), 1);
    assert_eq!(server.hgetall("{s}:tagged:distlock_owners").await.len(), 1);
    permits.release().await.unwrap();
    other.release().await.unwrap();
    assert_eq!(text(&server, "s").await.unwrap(), "2");
    assert_eq!(text(&server, "{s}").await.unwrap(), "1");
}
