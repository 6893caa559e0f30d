//! Users and passwords: by the URL, by the builder, and by a function that is asked before each connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{Builder, Client, Credentials, Error};
use distlock_tests::{RedisServer, SentinelSet, eventually_eq, lock_once};

use crate::redis::{SOON, ms};

in_real_time!(
    CONNECT;
    error_of_the_function_is_an_outage_that_says_so,
    function_that_never_answers_is_named_by_the_error_of_the_connection_also_behind_sentinels,
    password_of_a_file_is_read_again_by_each_connection_for_the_user_of_the_url,
    panic_of_the_function_is_the_error_of_that_connection,
);

/// For clients that cannot connect: each of them goes on for so long.
const CONNECT: Duration = ms(1_000);

/// The two users, who may do anything.
pub(super) const USERS: [[&str; 8]; 2] = [
    [
        "ACL",
        "SETUSER",
        "shop",
        "on",
        "+@all",
        "~*",
        "&*",
        ">p@ss/word",
    ],
    ["ACL", "SETUSER", "other", "on", "+@all", "~*", "&*", ">new"],
];

pub(super) async fn server() -> RedisServer {
    let server = RedisServer::start().await;
    server.cli(&USERS[0]).await;
    server
}

async fn user(server: &RedisServer, builder: Builder, url: &str) -> String {
    let client = builder.connect(url).await.unwrap();
    lock_once(&client, "k").await;
    // The server may still list connections of a client that was dropped.
    let id = client.id().to_string();
    let clients = server.client_list().await;
    let ours = clients.iter().find(|one| one.field("name").ends_with(&id));
    ours.expect("a connection").field("user").to_owned()
}

#[tokio::test]
async fn builders_credentials_are_taken_as_they_are_and_instead_of_the_urls() {
    let server = server().await;
    let plain = Client::builder();
    assert_eq!(user(&server, plain.clone(), &server.url()).await, "default");
    let encoded = server.url().replace("//", "//shop:p%40ss%2Fword@");
    assert_eq!(user(&server, plain.clone(), &encoded).await, "shop");
    let builder = plain.clone().credentials("shop", "p@ss/word");
    assert_eq!(user(&server, builder.clone(), &server.url()).await, "shop");
    let wrong = server.url().replace("//", "//shop:wrong@");
    assert_eq!(user(&server, builder, &wrong).await, "shop");
    let error = plain.connect(&wrong).await.unwrap_err();
    assert!(matches!(error, Error::LoginDenied { .. }), "{error}");
    assert!(!error.to_string().contains("wrong@"), "{error}");
}

#[tokio::test]
async fn default_user_has_a_password_alone() {
    let server = RedisServer::start().await;
    let mut admin = server.connection().await;
    let mut set = redis::cmd("CONFIG");
    set.arg(&["SET", "requirepass", "other"]);
    set.query_async::<()>(&mut admin).await.unwrap();
    let error = Client::connect(&server.url()).await.unwrap_err();
    assert!(matches!(error, Error::LoginDenied { .. }), "{error}");
    assert!(
        error.to_string().contains("redis://:password@host"),
        "{error}"
    );
    let builder = Client::builder()
        .credentials_from(|| async { Ok::<_, io::Error>(Credentials::of_default_user("other")) });
    let by_url = server.url().replace("//", "//:other@");
    for client in [
        builder.connect(&server.url()).await.unwrap(),
        Client::connect(&by_url).await.unwrap(),
    ] {
        assert!(!client.lock("k").is_locked().await.unwrap());
    }
}

#[tokio::test]
async fn function_is_asked_before_each_connection() {
    let server = server().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let builder = Client::builder().credentials_from(move || {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, io::Error>(Credentials::new("shop", "p@ss/word")) }
    });
    let client = builder.connect(&server.url()).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    for connections in 2..5 {
        assert!(server.kill_clients("normal").await >= 1);
        let again = || async { asked.load(Ordering::Relaxed) };
        eventually_eq(SOON, "asked again", connections, again).await;
        lock_once(&client, "k").await;
    }
}

async fn error_of_the_function_is_an_outage_that_says_so() {
    let server = server().await;
    let is_away = Arc::new(AtomicUsize::new(1));
    let away = Arc::clone(&is_away);
    let builder = Client::builder()
        .response_timeout(ms(200))
        .unavailable_after(ms(500))
        .credentials_from(move || {
            let is_away = away.load(Ordering::Relaxed) == 1;
            async move {
                if is_away {
                    Err("the vault is sealed")
                } else {
                    Ok(Credentials::new("shop", "p@ss/word"))
                }
            }
        });
    let hasty = builder.clone().connect_timeout(CONNECT);
    let error = hasty.connect(&server.url()).await.unwrap_err();
    assert!(
        error.is_unavailable() && error.to_string().contains("the vault is sealed"),
        "{error}"
    );
    is_away.store(0, Ordering::Relaxed);
    let client = builder.connect(&server.url()).await.unwrap();
    is_away.store(1, Ordering::Relaxed);
    assert!(server.kill_clients("normal").await >= 1);
    let told = || async {
        let tried = client.lock("k").acquire().wait(SOON).await;
        let told = |error: Error| {
            error.is_unavailable() && error.to_string().contains("the vault is sealed")
        };
        tried.is_err_and(told)
    };
    eventually_eq(SOON, "told", true, told).await;
    is_away.store(0, Ordering::Relaxed);
    // The pause before its next try may be longer than acquisitions go on without an answer.
    let works = || async { client.lock("k").acquire().wait(SOON).await.is_ok() };
    eventually_eq(SOON, "it works again", true, works).await;
}

/// The users of the client's connections, and the ids of these.
async fn connections(server: &RedisServer) -> (Vec<String>, Vec<String>) {
    let clients = server.client_list().await;
    let ours = clients.iter().filter(|client| !client.is_harness());
    let mut ours: Vec<_> = ours
        .map(|client| {
            (
                client.field("id").to_owned(),
                client.field("user").to_owned(),
            )
        })
        .collect();
    ours.sort();
    let (ids, users) = ours.into_iter().unzip();
    (users, ids)
}

async fn function_that_never_answers_is_named_by_the_error_of_the_connection_also_behind_sentinels()
{
    let (server, set) = (
        server().await,
        SentinelSet::builder().patient().start().await,
    );
    let builder = Client::builder()
        .connect_timeout(CONNECT)
        .credentials_from(std::future::pending::<Result<Credentials, io::Error>>);
    for url in [server.url(), set.url()] {
        let error = builder.clone().connect(&url).await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("the function that gives the user and the password has not finished"),
            "{url}: {text}"
        );
    }
}

#[tokio::test]
async fn refused_credentials_leave_the_connection_its_rights() {
    let server = server().await;
    let is_wrong = Arc::new(AtomicUsize::new(0));
    let wrong = Arc::clone(&is_wrong);
    let builder = Client::builder().credentials_interval(ms(50));
    let builder = builder.credentials_from(move || {
        let password = match wrong.load(Ordering::Relaxed) {
            0 => "p@ss/word",
            _ => "wrong",
        };
        async move { Ok::<_, io::Error>(Credentials::new("shop", password)) }
    });
    let client = builder.connect(&server.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    let (_, before) = connections(&server).await;
    is_wrong.store(1, Ordering::Relaxed);
    let refused = || async { format!("{:?}", server.cli(&["ACL", "LOG"]).await).contains("auth") };
    eventually_eq(SOON, "refused", true, refused).await;
    guard.release().await.unwrap();
    lock_once(&client, "k").await;
    assert_eq!(connections(&server).await.1, before);
}

async fn password_of_a_file_is_read_again_by_each_connection_for_the_user_of_the_url() {
    let server = server().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "p@ss/word\n").unwrap();
    let plain = server.url().replace("//", "//shop@");
    let url = format!("{plain}?password_file={}", file.path().display());
    assert_eq!(user(&server, Client::builder(), &url).await, "shop");
    let client = Client::builder().password_file(file.path());
    let client = client.connect(&plain).await.unwrap();
    server
        .cli(&["ACL", "SETUSER", "shop", "resetpass", ">new"])
        .await;
    std::fs::write(file.path(), "new").unwrap();
    assert!(server.kill_clients("normal").await >= 1);
    let works = || async { client.lock("k").acquire().wait(SOON).await.is_ok() };
    eventually_eq(SOON, "it works again", true, works).await;
    let error = Client::connect(&plain).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("a user without password") && text.contains("`password_file`"),
        "{text}"
    );
    let missing = Client::builder()
        .password_file("/no/such/file")
        .connect_timeout(CONNECT);
    let text = missing.connect(&plain).await.unwrap_err().to_string();
    assert!(text.contains("the password in /no/such/file"), "{text}");
}

async fn panic_of_the_function_is_the_error_of_that_connection() {
    let server = server().await;
    let panics = Arc::new(AtomicUsize::new(1));
    let now = Arc::clone(&panics);
    let builder = Client::builder().credentials_from(move || {
        assert_eq!(now.load(Ordering::Relaxed), 0, "the vault is sealed");
        async { Ok::<_, io::Error>(Credentials::new("shop", "p@ss/word")) }
    });
    let hasty = builder.clone().connect_timeout(CONNECT);
    let text = hasty.connect(&server.url()).await.unwrap_err().to_string();
    assert!(
        text.contains("the function panicked") && text.contains("sealed"),
        "{text}"
    );
    panics.store(0, Ordering::Relaxed);
    let client = builder.connect(&server.url()).await.unwrap();
    lock_once(&client, "k").await;
}
