//! Rows 53 and 66: a user of the server with the rights that a lock needs, and no others. The rights are those of the guide.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Client, Credentials, Error, Loss};
use distlock_tests::{Proxy, RedisServer, eventually_eq, lock_once, rights};
use redis::Value;
use tokio::time::{sleep, timeout};
use tracing_subscriber::fmt::MakeWriter;

use crate::foreign::Foreign;
use crate::row::{Row, rows};
use crate::support::{SOON, ms};

/// What a client asks at connect, and can do without.
///
/// Servers before version 7 log a denied `CLIENT SETINFO` as `client`.
const OPTIONAL: [&str; 3] = ["client|setinfo", "client", "info"];

/// Gives `user` what the guide gives for locks, and then what `more` says.
pub(super) async fn grant(admin: &mut Foreign, user: &str, more: &[&str]) {
    let rights = rights::of(rights::LOCKS);
    let words = ["ACL", "SETUSER", user, "reset", "on", ">SECRET"];
    let nothing = ["resetkeys", "resetchannels", "-@all"];
    admin
        .send(&[&words[..], &nothing, &rights, more].concat())
        .await;
}

pub(super) async fn connect(server: &RedisServer, user: &str) -> Result<Client, Error> {
    Client::builder()
        .key_prefix("shop:")
        .watchdog_timeout(ms(1_500))
        .connect(&format!("redis://{user}:SECRET@{}", server.addr()))
        .await
}

/// `user command` or `user key` .. of all that was refused.
pub(crate) async fn refused(admin: &mut Foreign) -> BTreeSet<String> {
    let log: Vec<Vec<(String, Value)>> = admin.ask(&["ACL", "LOG", "1000"]).await.unwrap();
    let text = |entry: &[(String, Value)], field: &str| {
        let found = entry.iter().find(|(name, _)| name == field);
        let value = found.map(|(_, value)| redis::from_redis_value_ref::<String>(value));
        value.and_then(Result::ok).unwrap_or_default()
    };
    log.iter()
        // The driver's introduction, which servers from 7.2 on know, and which nothing needs.
        .filter(|entry| !OPTIONAL.contains(&text(entry, "object").as_str()))
        .map(|entry| format!("{} {}", text(entry, "username"), text(entry, "object")))
        .collect()
}

/// A server whose default user is off, and a connection that was there before.
pub(crate) async fn server_without_default_user() -> (RedisServer, Foreign) {
    let server = RedisServer::start().await;
    let mut admin = Foreign::on(&server).await;
    admin.send(&["ACL", "SETUSER", "default", "off"]).await;
    (server, admin)
}

async fn f53_user_of_the_guide_can_do_nothing_else(row: &Row) {
    let (server, mut admin) = server_without_default_user().await;
    grant(&mut admin, "shop", &[]).await;
    let url = format!("redis://shop:SECRET@{}", server.addr());
    let client = redis::Client::open(url).unwrap();
    let mut shop = client.get_multiplexed_async_connection().await.unwrap();
    let strange: [&[&str]; 12] = [
        &["FLUSHALL"],
        &["KEYS", "*"],
        &["SCAN", "0"],
        &["GET", "shop:k"],
        &["SET", "shop:k", "x"],
        &["CONFIG", "GET", "*"],
        &["SCRIPT", "LOAD", "return 1"],
        &["HGET", "other:k", "f"],
        &["PUBLISH", "redisson_lock__channel:{other:k}", "0"],
        &["SUBSCRIBE", "redisson_lock__channel:{other:k}"],
        &["EVAL", "return redis.call('DEL', KEYS[1])", "1", "other:k"],
        &[
            "EVAL",
            "return redis.call('PUBLISH', ARGV[1], '0')",
            "0",
            "any",
        ],
    ];
    for words in strange {
        let mut command = redis::Cmd::new();
        command.arg(words);
        let answer = command.query_async::<Value>(&mut shop).await;
        let error = answer.expect_err("refused").to_string();
        assert!(is_denial(&error), "{words:?}: {error}");
        row.injected("foreign command refused", 1);
    }
}

async fn f53_database_of_the_url_needs_the_right_to_select_it(row: &Row) {
    let (server, mut admin) = server_without_default_user().await;
    let url = format!("redis://shop:SECRET@{}/3", server.addr());
    let connect = || Client::builder().key_prefix("shop:").connect(&url);
    grant(&mut admin, "shop", &[]).await;
    let error = connect().await.unwrap_err();
    assert!(matches!(error, Error::LoginDenied { .. }), "{error:?}");
    assert!(error.to_string().contains("`+select`"), "{error}");
    row.injected("SELECT refused", 1);
    grant(&mut admin, "shop", &["+select"]).await;
    lock_once(&connect().await.unwrap(), "k").await;
}

/// Whether the server says that the user lacks a right, for a command or inside a script.
pub(crate) fn is_denial(error: &str) -> bool {
    let texts = [
        "NoPerm",
        "executing the script can't",
        "ACL failure in script",
    ];
    texts.iter().any(|text| error.contains(text))
}

/// A denial is an error at once, and not at the end of the wait, which is longer.
async fn denied<T: std::fmt::Debug>(what: impl Future<Output = Result<T, Error>>) -> String {
    let error = timeout(SOON, what).await.expect("an answer").unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    error.to_string()
}

async fn f53_denials_are_told_as_such_and_at_once(row: &Row) {
    let (server, mut admin) = server_without_default_user().await;
    grant(&mut admin, "shop", &[]).await;
    let client = connect(&server, "shop").await.unwrap();
    for command in ["exists", "pexpire", "hset", "evalsha"] {
        grant(&mut admin, "shop", &[&format!("-{command}")]).await;
        let text = denied(client.lock("k").acquire().wait(2 * SOON).into_future()).await;
        println!("without {command}: {text}");
        grant(&mut admin, "shop", &[]).await;
        row.injected("command denied", 1);
    }
    let foreign_keys = ["resetkeys", "~other:*"];
    grant(&mut admin, "shop", &foreign_keys).await;
    println!(
        "key: {}",
        denied(client.lock("k").acquire().into_future()).await
    );
    println!("key: {}", denied(client.lock("k").holders()).await);
    println!("key: {}", denied(client.lock("k").force_release()).await);
    row.injected("key denied", 3);
    grant(&mut admin, "shop", &[]).await;
    let guard = client.lock("k").acquire().await.unwrap();
    grant(&mut admin, "shop", &["resetchannels"]).await;
    // The key is free. It is not an error that no message was sent.
    guard.release().await.unwrap();
    row.injected("channel denied", 1);
    admin
        .send(&["ACL", "SETUSER", "shop", "resetpass", ">OTHER"])
        .await;
    for user in ["shop", "nobody"] {
        let connecting = timeout(SOON, connect(&server, user));
        let error = connecting.await.expect("an answer").unwrap_err();
        assert!(matches!(error, Error::LoginDenied { .. }), "{error:?}");
        let (text, address) = (error.to_string(), server.addr().to_string());
        // An address is not quoted like a key.
        assert!(
            text.contains(&format!("lock server at {address} denied the login: ")),
            "{text}"
        );
        assert!(error.is_permanent() && !text.contains("SECRET"), "{text}");
        println!("{user}: {text}");
    }
    row.injected("connection denied", 2);
}

async fn f66_hold_is_lost_at_its_deadline_after_a_password_change(row: &Row) {
    let (server, mut admin) = server_without_default_user().await;
    grant(&mut admin, "shop", &[]).await;
    let client = connect(&server, "shop").await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    let change = ["ACL", "SETUSER", "shop", "resetpass"];
    admin.send(&[&change[..], &[">OTHER"]].concat()).await;
    let killed: u64 = admin
        .ask(&["CLIENT", "KILL", "USER", "shop"])
        .await
        .unwrap();
    row.injected("connection ended by a new password", killed);
    timeout(SOON, guard.lost()).await.expect("told");
    let error = guard.reenter().unwrap_err();
    let expired = matches!(
        &error,
        Error::Lost {
            reason: Loss::Expired,
            ..
        }
    );
    assert!(expired, "{error}");
    // The client has not given up: with the old password it is back.
    admin.send(&[&change[..], &[">SECRET"]].concat()).await;
    let again = client.lock("other").acquire().wait(SOON).into_future();
    let mut again = again.await;
    while matches!(again, Err(Error::Denied { .. })) {
        sleep(ms(20)).await;
        again = client.lock("other").acquire().wait(SOON).await;
    }
    again.unwrap().release().await.unwrap();
}

/// Takes the right to log in from `shop`, and ends its connections.
async fn change_password(admin: &mut Foreign, row: &Row, password: &str) {
    let password = format!(">{password}");
    admin
        .send(&["ACL", "SETUSER", "shop", "resetpass", &password])
        .await;
    let kill = ["CLIENT", "KILL", "USER", "shop"];
    let killed: u64 = admin.ask(&kill).await.unwrap();
    row.injected("connection ended by a new password", killed);
}

/// A client that waits long enough for a connection, also on a busy machine.
async fn patient(server: &RedisServer) -> Client {
    let builder = Client::builder().key_prefix("shop:");
    let url = format!("redis://shop:SECRET@{}", server.addr());
    builder.connect(&url).await.unwrap()
}

/// An attempt that does not wait is denied.
async fn denied_at_once(client: &Client) {
    let attempt = client.lock("k").acquire().wait(Duration::ZERO);
    denied(attempt.into_future()).await;
}

async fn f66_wait_outlives_a_change_of_the_password(row: &Row) {
    let (server, mut admin) = server_without_default_user().await;
    grant(&mut admin, "shop", &[]).await;
    let client = patient(&server).await;
    drop(client.lock("k").acquire().await.unwrap());
    change_password(&mut admin, row, "OTHER").await;
    denied_at_once(&client).await;
    let waits = tokio::spawn(client.lock("k").acquire().into_future());
    sleep(ms(1_500)).await;
    assert!(!waits.is_finished(), "it did not wait");
    change_password(&mut admin, row, "SECRET").await;
    let guard = timeout(SOON, waits).await.expect("connected").unwrap();
    guard.unwrap().release().await.unwrap();
}

async fn f66_changed_password_is_asked_for_and_no_hold_is_lost(row: &Row) {
    let (server, mut admin) = server_without_default_user().await;
    grant(&mut admin, "shop", &[]).await;
    let vault = Arc::new(Mutex::new(String::from("SECRET")));
    let password = Arc::clone(&vault);
    let builder = Client::builder()
        .key_prefix("shop:")
        .watchdog_timeout(ms(3_000))
        .credentials_from(move || {
            let password = password.lock().unwrap().clone();
            async { Ok::<_, io::Error>(Credentials::new("shop", password)) }
        });
    let client = builder.connect(&server.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    for password in ["NEW", "NEWER"] {
        *vault.lock().unwrap() = password.to_owned();
        change_password(&mut admin, row, password).await;
        // The time of a whole lease: it was renewed over a new connection.
        let lost = timeout(ms(3_500), guard.lost()).await;
        assert!(lost.is_err() && guard.is_held(), "lost with {password}");
        let other = client.lock("other").acquire().wait(SOON).await.unwrap();
        other.release().await.unwrap();
    }
    guard.release().await.unwrap();
}

async fn f66_right_that_is_back_serves_the_next_acquisition(row: &Row) {
    let (server, mut admin) = server_without_default_user().await;
    grant(&mut admin, "shop", &[]).await;
    let client = patient(&server).await;
    change_password(&mut admin, row, "OTHER").await;
    // Denied for so long that the pauses between the client's own tries are as long as they get.
    for _ in 0..4 {
        denied_at_once(&client).await;
        sleep(ms(1_000)).await;
    }
    // These pauses last one to two seconds, and a caller does not wait for their end.
    let asked = async {
        for _ in 0..10 {
            denied_at_once(&client).await;
        }
    };
    let tried_again = row.timeout(Duration::from_secs(6), asked).await;
    tried_again.expect("tried again because somebody asked");
    change_password(&mut admin, row, "SECRET").await;
    let guard = client.lock("k").try_acquire().await.unwrap();
    guard.expect("free").release().await.unwrap();
}

/// Somebody asks for the connection all the time.
async fn f66_server_that_refuses_the_login_is_tried_with_growing_pauses(row: &Row) {
    let (server, mut admin) = server_without_default_user().await;
    grant(&mut admin, "shop", &[]).await;
    let proxy = Proxy::start(server.addr()).await;
    let builder = Client::builder().key_prefix("shop:");
    let url = format!("redis://shop:SECRET@{}", proxy.addr());
    let client = builder.connect(&url).await.unwrap();
    lock_once(&client, "k").await;
    change_password(&mut admin, row, "OTHER").await;
    let before = proxy.accepted();
    let asks = async {
        loop {
            // The first one may find the end of the connection.
            let _denied = client.lock("k").acquire().wait(Duration::ZERO).await;
        }
    };
    // The time is the fault.
    let _endless = timeout(SOON, asks).await;
    let tries = proxy.accepted() - before;
    assert!((8..50).contains(&tries), "{tries} tries");
}

/// What is logged, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

async fn f53_waiter_without_the_right_to_subscribe_asks_again_by_itself(row: &Row) {
    /// Of a waiter whom nobody tells.
    const INTERVAL: Duration = Duration::from_secs(5);
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(log.clone());
    let _logging = tracing::subscriber::set_default(subscriber.finish());
    let (server, mut admin) = server_without_default_user().await;
    grant(&mut admin, "shop", &[]).await;
    grant(&mut admin, "mute", &["resetchannels"]).await;
    let holder = connect(&server, "shop").await.unwrap();
    let waiter = connect(&server, "mute").await.unwrap();
    let lease = Duration::from_secs(60);
    let guard = holder.lock("k").acquire().lease(lease).await.unwrap();
    let waits = tokio::spawn(waiter.lock("k").acquire().into_future());
    let warned = || async {
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .any(|line| line.contains("WARN") && line.contains("cannot subscribe"))
    };
    eventually_eq(SOON, "a warning", true, warned).await;
    guard.release().await.unwrap();
    let guard = row.timeout(2 * INTERVAL, waits).await.expect("asked again");
    // Its own release cannot tell anybody either.
    guard.unwrap().unwrap().release().await.unwrap();
    assert!(!holder.lock("k").is_locked().await.unwrap());
    let refused = refused(&mut admin).await;
    row.injected("channel denied", refused.len() as u64);
}

rows! {
    Real: f53_user_of_the_guide_can_do_nothing_else,
        f53_database_of_the_url_needs_the_right_to_select_it,
        f53_denials_are_told_as_such_and_at_once,
        f53_waiter_without_the_right_to_subscribe_asks_again_by_itself,
        f66_hold_is_lost_at_its_deadline_after_a_password_change,
        f66_wait_outlives_a_change_of_the_password,
        f66_changed_password_is_asked_for_and_no_hold_is_lost,
        f66_right_that_is_back_serves_the_next_acquisition,
        f66_server_that_refuses_the_login_is_tried_with_growing_pauses;
}
