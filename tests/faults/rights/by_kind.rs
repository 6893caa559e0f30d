//! Row 53, for keys with and without hash tags, and for the other primitives.

use distlock::Error;
use distlock_tests::{RedisServer, rights};
use futures_util::future::join_all;
use redis::Value;
use tokio::sync::Mutex;

use super::least::{is_denial, refused, server_without_default_user};
use crate::foreign::Foreign;
use crate::lives::{LIVES, Life, Stage};
use crate::row::{Row, rows};

/// A user that may log in, and nothing else.
const NOTHING: [&str; 6] = [
    "reset",
    "on",
    ">SECRET",
    "resetkeys",
    "resetchannels",
    "-@all",
];

impl Life {
    /// What the guide adds for it to the rights of the locks, word by word.
    fn added(self) -> Vec<&'static str> {
        match self {
            Self::Locks => Vec::new(),
            Self::Fenced => rights::of("fenced lock"),
            Self::Fair => rights::of("fair lock, also non-reentrant"),
            Self::ReadWrite => rights::of("read/write lock"),
            Self::Numbers => rights::of("semaphore, count-down latch"),
            Self::Permits => rights::of("expirable semaphore"),
        }
    }

    /// All its rights, after `ACL SETUSER <user>`.
    fn rights(self) -> Vec<&'static str> {
        [&NOTHING[..], &rights::of(rights::LOCKS), &self.added()].concat()
    }
}

/// A server that only lets in the users that we make, and the connection of its administrator.
async fn stage() -> (RedisServer, Foreign) {
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

async fn f53_rights_hold_for_a_prefix_that_is_a_hash_tag(row: &Row) {
    let (server, mut admin) = stage().await;
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

async fn f53_keys_without_a_hash_tag_need_fewer_patterns(row: &Row) {
    let (server, mut admin) = stage().await;
    for life in LIVES {
        let user = format!("{life:?}");
        let (left_out, rights): (Vec<&str>, Vec<&str>) = life
            .rights()
            .into_iter()
            .partition(|word| word.ends_with(":shop:*"));
        admin
            .send(&[&["ACL", "SETUSER", &user], &rights[..]].concat())
            .await;
        row.injected("right taken away", left_out.len() as u64);
    }
    let admin = Mutex::new(admin);
    for life in LIVES {
        let stage = Stage {
            server: &server,
            other: &admin,
            user: &format!("{life:?}"),
            prefix: "shop:",
        };
        stage.play(life, "plain").await.unwrap();
    }
    let seen = refused(&mut *admin.lock().await).await;
    assert!(seen.is_empty(), "{seen:?}");
}

async fn f53_user_with_the_whole_family_can_do_nothing_else(row: &Row) {
    let (server, mut admin) = stage().await;
    let added = LIVES.iter().flat_map(|life| life.added());
    let locks = ["ACL", "SETUSER", "all"]
        .into_iter()
        .chain(Life::Locks.rights());
    let words: Vec<&str> = locks.chain(added).collect();
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
        // Keys that only the script names count, too.
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
        assert!(is_denial(&error), "{words:?}: {error}");
        row.injected("foreign command refused", 1);
    }
}

rows! {
    Real: f53_rights_hold_for_a_prefix_that_is_a_hash_tag,
        f53_keys_without_a_hash_tag_need_fewer_patterns,
        f53_user_with_the_whole_family_can_do_nothing_else;
}
