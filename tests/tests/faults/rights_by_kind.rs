//! Row 53, for the other primitives: each has what the README lists for it beside the lock's rights, and needs it all.

use distlock::test_util::{Kind, Verbs};
use distlock::{Client, Error, Lock, RedLock};
use distlock_tests::RedisServer;
use futures_util::future::join_all;
use redis::Value;
use tokio::sync::Mutex;
use tokio::time::sleep;
use uuid::Uuid;

use crate::foreign::Foreign;
use crate::rights::{README, granted, refused, server_without_default_user};
use crate::row::{Row, rows};
use crate::support::{SOON, idle, ms};

/// A primitive's title in the README, and what it does in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Locks,
    Fenced,
    Fair,
    ReadWrite,
    Numbers,
    Permits,
}

const LIVES: [Life; 6] = [
    Life::Locks,
    Life::Fenced,
    Life::Fair,
    Life::ReadWrite,
    Life::Numbers,
    Life::Permits,
];

impl Life {
    /// What the README adds for it, word by word.
    fn added(self) -> Vec<&'static str> {
        let title = match self {
            Self::Locks => return Vec::new(),
            Self::Fenced => "\nfenced lock\n",
            Self::Fair => "\nfair lock, also non-reentrant\n",
            Self::ReadWrite => "\nread/write lock\n",
            Self::Numbers => "\nsemaphore, count-down latch\n",
            Self::Permits => "\nexpirable semaphore\n",
        };
        let (_, rest) = README.split_once(title).expect("in the README");
        let lines = rest.lines().take_while(|line| line.starts_with("  "));
        lines.flat_map(str::split_whitespace).collect()
    }

    /// All its rights, after `ACL SETUSER <user>`.
    fn rights(self) -> Vec<&'static str> {
        [&granted()[3..], &self.added()].concat()
    }
}

/// A server, a user of it, and another program that may do anything.
struct Stage<'a> {
    server: &'a RedisServer,
    other: &'a Mutex<Foreign>,
    user: &'a str,
    prefix: &'a str,
}

impl Stage<'_> {
    async fn client(&self) -> Result<Client, Error> {
        Client::builder()
            .key_prefix(self.prefix)
            .watchdog_timeout(ms(1_500))
            .connect(&format!(
                "redis://{}:SECRET@{}",
                self.user,
                self.server.addr()
            ))
            .await
    }

    async fn play(&self, life: Life, key: &str) -> Result<(), Error> {
        let (one, two) = (self.client().await?, self.client().await?);
        match life {
            Life::Locks => locks(&one, &two, key).await?,
            Life::Fenced => fenced(&one, &two, key).await?,
            Life::Fair => self.fair(&one, &two, key).await?,
            Life::ReadWrite => read_write(&one, &two, key).await?,
            Life::Numbers => numbers(&one, &two, key).await?,
            Life::Permits => permits(&one, &two, key).await?,
        }
        for client in [&one, &two] {
            idle(client).await;
        }
        Ok(())
    }

    /// Also beside a waiter of Redisson's, behind which ours was dropped from the queue.
    async fn fair(&self, one: &Client, two: &Client, key: &str) -> Result<(), Error> {
        let lock = one.fair_lock(key);
        let guard = lock.acquire().wait(SOON).await?;
        let again = guard.reenter()?;
        let waiter = tokio::spawn(two.fair_lock(key).acquire().wait(SOON).into_future());
        sleep(RENEWED).await;
        lock.holders().await?;
        again.release().await?;
        guard.release().await?;
        drop(waiter.await.expect("no panic")?);
        lock.force_release().await?;
        let alone = one.non_reentrant_fair_lock(format!("{key}:alone"));
        alone.acquire().wait(SOON).await?.release().await?;

        let queued = format!("{key}:queued");
        let name = format!("{}{queued}", self.prefix);
        let name = if name.contains('{') {
            name
        } else {
            format!("{{{name}}}")
        };
        let (queue, timeouts) = (
            format!("redisson_lock_queue:{name}"),
            format!("redisson_lock_timeout:{name}"),
        );
        let verbs = Verbs::new(one, Uuid::from_u128(7)).of_kind(Kind::Fair);
        let waits = verbs.waiting(SOON);
        waits.attempt(&queued, 1, SOON).await?;
        waits.attempt(&queued, 2, SOON).await?;
        let ours = format!("{}:2", Uuid::from_u128(7));
        let mut other = self.other.lock().await;
        for words in [
            ["LREM", &queue, "0", &ours],
            ["ZREM", &timeouts, &ours, ""],
            ["RPUSH", &queue, "theirs", "theirs"],
            ["ZADD", &timeouts, "99999999999999", "theirs"],
        ] {
            other.send(&words).await;
        }
        drop(other);
        waits.attempt(&queued, 2, SOON).await?;
        for owner in [1, 2] {
            verbs.withdraw(&queued, owner).await?;
        }
        Ok(())
    }
}

/// Longer than a third of the lease.
const RENEWED: std::time::Duration = ms(800);

async fn locks(one: &Client, two: &Client, key: &str) -> Result<(), Error> {
    let locks = |client: &Client| -> Lock { client.lock(key) };
    let guard = locks(one).acquire().wait(SOON).await?;
    let waiter = tokio::spawn(locks(two).acquire().wait(SOON).into_future());
    sleep(RENEWED).await;
    guard.release().await?;
    waiter.await.expect("no panic")?.release().await?;
    let guard = one.non_reentrant_lock(key).acquire().wait(SOON).await?;
    let waiter = tokio::spawn(two.spin_lock(key).acquire().wait(SOON).into_future());
    sleep(ms(50)).await;
    guard.release().await?;
    waiter.await.expect("no panic")?.release().await?;
    let keys = [format!("{key}:1"), format!("{key}:2")];
    let many = one.multi_lock(keys);
    let guard = many.acquire().wait(SOON).await?;
    many.holders().await?;
    guard.release().await?;
    many.force_release().await?;
    let quorum = RedLock::new([one.clone()]).lock(key);
    quorum.acquire().wait(SOON).await?.release().await
}

async fn fenced(one: &Client, two: &Client, key: &str) -> Result<(), Error> {
    let lock = one.fenced_lock(key);
    let guard = lock.acquire().wait(SOON).await?;
    let again = guard.reenter()?;
    let waiter = tokio::spawn(two.fenced_lock(key).acquire().wait(SOON).into_future());
    sleep(RENEWED).await;
    again.release().await?;
    guard.release().await?;
    let guard = waiter.await.expect("no panic")?;
    lock.force_release().await?;
    drop(guard);
    Ok(())
}

async fn read_write(one: &Client, two: &Client, key: &str) -> Result<(), Error> {
    let lock = one.rw_lock(key);
    let reader = lock.read().acquire().wait(SOON).await?;
    let again = reader.reenter()?;
    let writer = two.rw_lock(key).write();
    let waiter = tokio::spawn(writer.acquire().wait(SOON).into_future());
    sleep(RENEWED).await;
    let late = tokio::spawn(lock.read().acquire().wait(SOON).into_future());
    lock.read().holders().await?;
    again.release().await?;
    reader.release().await?;
    let writer = waiter.await.expect("no panic")?;
    let inside = two.rw_lock(key);
    let inside = async { inside.read().acquire().wait(SOON).await?.release().await };
    writer.scope(inside).await??;
    sleep(RENEWED).await;
    writer.release().await?;
    late.await.expect("no panic")?.release().await?;
    lock.is_locked().await?;
    let writer = lock.write().acquire().wait(SOON).await?;
    lock.force_release().await?;
    drop(writer);
    Ok(())
}

async fn numbers(one: &Client, two: &Client, key: &str) -> Result<(), Error> {
    let pool = one.semaphore(format!("{key}:pool"));
    pool.try_set_permits(2).await?;
    let permits = pool.acquire_many(2).wait(SOON).await?;
    let waiter = two.semaphore(format!("{key}:pool"));
    let waiter = tokio::spawn(waiter.acquire().wait(SOON).into_future());
    sleep(RENEWED).await;
    permits.release().await?;
    waiter.await.expect("no panic")?.release().await?;
    pool.add_permits(1).await?;
    pool.available_permits().await?;
    pool.drain_permits().await?;
    pool.delete().await?;
    let latch = one.count_down_latch(format!("{key}:latch"));
    latch.try_set_count(1).await?;
    let waiter = two.count_down_latch(format!("{key}:latch"));
    let waiter = tokio::spawn(waiter.wait().timeout(SOON).into_future());
    sleep(ms(200)).await;
    latch.count().await?;
    latch.count_down().await?;
    waiter.await.expect("no panic")?;
    latch.try_set_count(1).await?;
    latch.delete().await?;
    Ok(())
}

async fn permits(one: &Client, two: &Client, key: &str) -> Result<(), Error> {
    let seats = one.expirable_semaphore(key);
    seats.try_set_permits(2).await?;
    let permits = seats.acquire_many(2).wait(SOON).await?;
    let waiter = two.expirable_semaphore(key);
    let waiter = tokio::spawn(waiter.acquire().wait(SOON).into_future());
    sleep(RENEWED).await;
    permits.release().await?;
    let permit = waiter.await.expect("no panic")?.into_id()?;
    seats.update_lease(permit, SOON).await?;
    seats.remaining_lease(permit).await?;
    seats.available_permits().await?;
    seats.acquired_permits().await?;
    seats.release(permit).await?;
    seats.set_permits(3).await?;
    seats.add_permits(1).await?;
    seats.delete().await?;
    Ok(())
}

/// A server on which nobody is but who we let in, and the connection of its administrator.
async fn ground() -> (RedisServer, Foreign) {
    let (server, mut admin) = server_without_default_user().await;
    let all = ["CONFIG", "SET", "acllog-max-len", "10000"];
    admin.send(&all).await;
    (server, admin)
}

/// Plays a life of each user, under two keys: with and without a hash tag.
async fn play(
    server: &RedisServer,
    other: &Mutex<Foreign>,
    life: Life,
    users: &[String],
    prefix: &str,
) -> Vec<Result<(), Error>> {
    let keys = |user: &String| [user.clone(), format!("{{{user}}}:tag")];
    let lives = users.iter().flat_map(|user| {
        keys(user).map(|key| async move {
            let stage = Stage {
                server,
                other,
                user,
                prefix,
            };
            stage.play(life, &key).await
        })
    });
    join_all(lives).await
}

async fn f53_rights_of_the_readme_are_enough_for_each_primitive_and_each_is_needed(row: &Row) {
    let (server, mut admin) = ground().await;
    let mut taken = Vec::new();
    let mut users = Vec::new();
    for life in LIVES {
        let rights = life.rights();
        let mut of_life = vec![format!("{life:?}")];
        // The lock's commands are the other test's.
        let is_pattern = |word: &&str| word.starts_with(['~', '&']);
        let words: Vec<&str> = match life {
            Life::Locks => rights.iter().copied().filter(is_pattern).collect(),
            _ => life.added(),
        };
        admin
            .send(&[&["ACL", "SETUSER", &of_life[0]], &rights[..]].concat())
            .await;
        for (at, word) in words.iter().enumerate() {
            let user = format!("{life:?}-{at}");
            let less: Vec<&str> = rights.iter().copied().filter(|one| one != word).collect();
            admin
                .send(&[&["ACL", "SETUSER", &user], &less[..]].concat())
                .await;
            taken.push((user.clone(), *word));
            of_life.push(user);
        }
        users.push((life, of_life));
    }
    let admin = Mutex::new(admin);
    for (life, users) in &users {
        let lives = play(&server, &admin, *life, users, "shop:").await;
        assert!(
            lives[..2].iter().all(Result::is_ok),
            "{life:?}: {:?}",
            &lives[..2]
        );
    }
    let refused = refused(&mut *admin.lock().await).await;
    for (user, word) in taken {
        let entry = match word.strip_prefix('+') {
            Some(command) => format!("{user} {command}"),
            // Else it has all, so whatever it is refused is this.
            None => format!("{user} "),
        };
        assert!(
            refused.iter().any(|one| one.starts_with(&entry)),
            "{user}: {word} is granted for nothing: {refused:?}"
        );
        row.injected("right taken away", 1);
    }
    let of_shops = |one: &&String| {
        LIVES
            .iter()
            .any(|life| one.starts_with(&format!("{life:?} ")))
    };
    let of_shops: Vec<_> = refused.iter().filter(of_shops).collect();
    assert!(of_shops.is_empty(), "{of_shops:?}");
}

async fn f53_rights_hold_for_a_prefix_that_is_a_hash_tag(row: &Row) {
    let (server, mut admin) = ground().await;
    for life in LIVES {
        let user = format!("{life:?}");
        let rights = life
            .rights()
            .into_iter()
            .map(|word| word.replace("shop:*", "{shop}:*"));
        // Of those with a brace before it only the latch's is needed.
        let rights: Vec<String> = rights
            .filter(|word| !word.contains("{{shop}") || word.contains("latch"))
            .collect();
        let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
        admin
            .send(&[&["ACL", "SETUSER", &user], &rights[..]].concat())
            .await;
    }
    let admin = Mutex::new(admin);
    for life in LIVES {
        let lives = play(&server, &admin, life, &[format!("{life:?}")], "{shop}:").await;
        assert!(lives.iter().all(Result::is_ok), "{life:?}: {lives:?}");
    }
    let mut admin = admin.lock().await;
    let seen = refused(&mut admin).await;
    assert!(seen.is_empty(), "{seen:?}");
    // The same rights are none for a key of the other prefix.
    let url = format!("redis://Locks:SECRET@{}", server.addr());
    let client = redis::Client::open(url).unwrap();
    let mut shop = client.get_multiplexed_async_connection().await.unwrap();
    let strange = redis::cmd("HGET")
        .arg("shop:k")
        .arg("f")
        .query_async::<Value>(&mut shop)
        .await;
    assert!(strange.unwrap_err().to_string().contains("NoPerm"));
    row.injected("foreign key refused", 1);
}

async fn f53_user_with_the_whole_family_can_do_nothing_else(row: &Row) {
    let (server, mut admin) = ground().await;
    let rights: Vec<&str> = LIVES.iter().flat_map(|life| life.added()).collect();
    let words = [&["ACL", "SETUSER", "all"], &granted()[3..], &rights[..]].concat();
    admin.send(&words).await;
    let url = format!("redis://all:SECRET@{}", server.addr());
    let client = redis::Client::open(url).unwrap();
    let mut all = client.get_multiplexed_async_connection().await.unwrap();
    let strange: &[&[&str]] = &[
        &["KEYS", "*"],
        &["SCAN", "0"],
        &["FLUSHALL"],
        &["CONFIG", "GET", "*"],
        &["ACL", "LIST"],
        &["RENAME", "shop:a", "shop:b"],
        &["GETDEL", "shop:a"],
        &["LPUSH", "redisson_lock_queue:{shop:a}", "x"],
        &["INCRBYFLOAT", "shop:a", "1"],
        &["GET", "other:a"],
        &["GET", "{other:a}:x"],
        &["GET", "redisson_lock_token:{other:a}"],
        &["LRANGE", "redisson_lock_queue:{other:a}", "0", "-1"],
        &["ZRANGE", "redisson_lock_timeout:{other:a}", "0", "-1"],
        &["ZADD", "{other:a}:timeout", "1", "x"],
        &["PUBLISH", "redisson_rwlock:{other:a}", "1"],
        &["PUBLISH", "redisson_sc:{other:a}", "1"],
        &[
            "PUBLISH",
            "redisson_countdownlatch__channel__{other:a}",
            "0",
        ],
        &["SUBSCRIBE", "redisson_rwlock:{other:a}"],
        &["PSUBSCRIBE", "redisson_sc:*"],
        &[
            "EVAL",
            "return redis.call('SET', KEYS[1], '1')",
            "1",
            "other:a",
        ],
        // Keys that a script names by itself count, too.
        &[
            "EVAL",
            "return redis.call('GET', '{other:a}:u:rwlock_timeout:1')",
            "0",
        ],
    ];
    for words in strange {
        let mut command = redis::Cmd::new();
        command.arg(*words);
        let answer = command.query_async::<Value>(&mut all).await;
        let error = answer.expect_err(words[0]).to_string();
        let refused = error.contains("NoPerm") || error.contains("executing the script can't");
        assert!(refused, "{words:?}: {error}");
        row.injected("foreign command refused", 1);
    }
}

rows! {
    Real: f53_rights_of_the_readme_are_enough_for_each_primitive_and_each_is_needed,
        f53_rights_hold_for_a_prefix_that_is_a_hash_tag,
        f53_user_with_the_whole_family_can_do_nothing_else;
}
