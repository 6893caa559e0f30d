//! Users and passwords: by the URL, by the builder, and by a function that is asked before each connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use distlock::{Builder, Client, Credentials, Error};
use distlock_tests::{RedisCluster, RedisServer, SentinelSet, eventually_eq, lock_once};

use crate::redis::{SOON, ms};

async fn server() -> RedisServer {
    let server = RedisServer::start().await;
    let rights = [
        "ACL",
        "SETUSER",
        "shop",
        "on",
        "+@all",
        "~*",
        "&*",
        ">p@ss/word",
    ];
    server.cli(&rights).await;
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

#[tokio::test]
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
    let hasty = builder.clone().connect_timeout(ms(1_000));
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

/// A second user, who may do all that the first one may.
async fn other_user(server: &RedisServer) {
    let rights = ["ACL", "SETUSER", "other", "on", "+@all", "~*", "&*", ">new"];
    server.cli(&rights).await;
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

#[tokio::test]
async fn changed_credentials_are_sent_over_the_connections_that_stand_also_that_for_messages() {
    let server = server().await;
    other_user(&server).await;
    let is_new = Arc::new(AtomicUsize::new(0));
    let new = Arc::clone(&is_new);
    let builder = Client::builder().credentials_interval(ms(50));
    let builder = builder.credentials_from(move || {
        let credentials = match new.load(Ordering::Relaxed) {
            0 => Credentials::new("shop", "p@ss/word"),
            _ => Credentials::new("other", "new"),
        };
        async { Ok::<_, io::Error>(credentials) }
    });
    let client = builder.connect(&server.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    let other = Client::connect(&server.url()).await.unwrap();
    let held = other.lock("held").acquire().await.unwrap();
    let waiting = tokio::spawn(client.lock("held").acquire().wait(2 * SOON).into_future());
    crate::redis::listened(&server, "held", 1).await;
    let ids = async || {
        let clients = server.client_list().await;
        let name = client.id().to_string();
        let ours = clients
            .iter()
            .filter(|one| one.field("name").ends_with(&name));
        let ours = ours.map(|one| (one.field("id").to_owned(), one.field("user").to_owned()));
        let mut ours: Vec<_> = ours.collect();
        ours.sort();
        ours
    };
    let before = ids().await;
    assert_eq!(before.len(), 2, "{before:?}");
    is_new.store(1, Ordering::Relaxed);
    let expected: Vec<_> = before
        .into_iter()
        .map(|(id, _)| (id, "other".to_owned()))
        .collect();
    eventually_eq(SOON, "the same connections", expected, ids).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

/// The ids and the users of a client's connections to these servers. The name of each connection ends with the client's id.
async fn users_of(servers: &[&RedisServer], client: &Client) -> Vec<(usize, u64, String)> {
    let name = client.id().to_string();
    let mut users = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        let clients = server.client_list().await;
        let own = clients
            .iter()
            .filter(|one| one.field("name").ends_with(&name));
        users.extend(own.map(|one| (at, one.id(), one.field("user").to_owned())));
    }
    users.sort();
    users
}

/// The connections that stand have the new user, and none was replaced.
async fn all_become_other(servers: &[&RedisServer], client: &Client, change: impl FnOnce()) {
    let before = users_of(servers, client).await;
    assert!(before.iter().all(|one| one.2 == "shop"), "{before:?}");
    change();
    let expected: Vec<_> = before
        .into_iter()
        .map(|(at, id, _)| (at, id, "other".to_owned()))
        .collect();
    let now = async || users_of(servers, client).await;
    eventually_eq(SOON, "the same connections", expected, now).await;
}

/// A builder whose function gives the first user, and the second one from then on that the number is not zero.
fn changing(is_new: &Arc<AtomicUsize>) -> Builder {
    let is_new = Arc::clone(is_new);
    let builder = Client::builder().credentials_interval(ms(50));
    builder.credentials_from(move || {
        let credentials = match is_new.load(Ordering::Relaxed) {
            0 => Credentials::new("shop", "p@ss/word"),
            _ => Credentials::new("other", "new"),
        };
        async { Ok::<_, io::Error>(credentials) }
    })
}

/// The two users, who may do anything.
const USERS: [[&str; 8]; 2] = [
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

#[tokio::test]
async fn changed_credentials_are_sent_over_each_connection_to_each_node_of_a_cluster() {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    for user in USERS {
        cluster.each(&user).await;
    }
    let is_new = Arc::new(AtomicUsize::new(0));
    let client = changing(&is_new).connect(&cluster.url()).await.unwrap();
    let other = Client::connect(&cluster.url()).await.unwrap();
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for node in 0..cluster.size() {
        let key = cluster.key_at(node, "k:").await;
        held.push(other.lock(&key).acquire().wait(SOON).await.unwrap());
        let waits = client.lock(&key).acquire().wait(4 * SOON);
        waiting.push(tokio::spawn(waits.into_future()));
    }
    let nodes: Vec<_> = (0..cluster.size()).map(|node| cluster.node(node)).collect();
    let count = || async { users_of(&nodes, &client).await.len() };
    // That for commands and that for messages.
    eventually_eq(SOON, "connections", 2 * nodes.len(), count).await;
    let change = || is_new.store(1, Ordering::Relaxed);
    all_become_other(&nodes, &client, change).await;
    for guard in held {
        guard.release().await.unwrap();
    }
    for waits in waiting {
        waits.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn changed_credentials_are_sent_to_the_master_and_those_of_a_file_to_the_sentinels() {
    let set = SentinelSet::start().await;
    for at in 0..3 {
        for user in USERS {
            set.server(at).cli(&user).await;
            set.sentinel(at).cli(&user).await;
        }
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "p@ss/word\n").unwrap();
    let url = format!("{}?sentinel_user=shop", set.url());
    let is_new = Arc::new(AtomicUsize::new(0));
    let builder = changing(&is_new).sentinel_password_file(file.path());
    let client = builder.connect(&url).await.unwrap();
    lock_once(&client, "k").await;
    let master = [set.server(set.master().await)];
    let change = || is_new.store(1, Ordering::Relaxed);
    all_become_other(&master, &client, change).await;
    // What a Sentinel logs of a login shows that there was one. The connections keep the user that they have.
    let ids = async |at: usize| {
        let clients = set.sentinel(at).client_list().await;
        let own = clients.iter().filter(|one| one.field("user") == "shop");
        own.map(distlock_tests::server::ClientLine::id)
            .collect::<Vec<_>>()
    };
    let before = [ids(0).await, ids(1).await, ids(2).await];
    std::fs::write(file.path(), "wrong\n").unwrap();
    for (at, before) in before.into_iter().enumerate() {
        let log = async || {
            let log = set.sentinel(at).cli(&["ACL", "LOG"]).await;
            format!("{log:?}").contains("auth")
        };
        eventually_eq(SOON, "a login at the Sentinel", true, log).await;
        assert!(!before.is_empty());
        assert_eq!(ids(at).await, before);
    }
    lock_once(&client, "k").await;
}

#[tokio::test]
async fn function_that_hangs_once_is_asked_again_for_the_connection_that_stands() {
    let server = server().await;
    other_user(&server).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let builder = Client::builder()
        .credentials_interval(ms(50))
        .connect_timeout(ms(500));
    let builder = builder.credentials_from(move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        async move {
            match number {
                0 => Ok::<_, io::Error>(Credentials::new("shop", "p@ss/word")),
                1 => std::future::pending().await,
                _ => Ok(Credentials::new("other", "new")),
            }
        }
    });
    let client = builder.connect(&server.url()).await.unwrap();
    let server = [&server];
    let now = async || {
        let users = users_of(&server, &client).await;
        users.into_iter().map(|one| one.2).collect::<Vec<_>>()
    };
    eventually_eq(SOON, "the new user", vec!["other".to_owned()], now).await;
    lock_once(&client, "k").await;
}

#[tokio::test]
async fn function_that_never_answers_is_named_by_the_error_of_the_connection_also_behind_sentinels()
{
    let (server, set) = (server().await, SentinelSet::start().await);
    let builder = Client::builder()
        .connect_timeout(ms(1_000))
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

#[tokio::test]
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
        .connect_timeout(ms(300));
    let text = missing.connect(&plain).await.unwrap_err().to_string();
    assert!(text.contains("the password in /no/such/file"), "{text}");
}

#[tokio::test]
async fn panic_of_the_function_is_the_error_of_that_connection() {
    let server = server().await;
    let panics = Arc::new(AtomicUsize::new(1));
    let now = Arc::clone(&panics);
    let builder = Client::builder().credentials_from(move || {
        assert_eq!(now.load(Ordering::Relaxed), 0, "the vault is sealed");
        async { Ok::<_, io::Error>(Credentials::new("shop", "p@ss/word")) }
    });
    let hasty = builder.clone().connect_timeout(ms(300));
    let text = hasty.connect(&server.url()).await.unwrap_err().to_string();
    assert!(
        text.contains("the function panicked") && text.contains("sealed"),
        "{text}"
    );
    panics.store(0, Ordering::Relaxed);
    let client = builder.connect(&server.url()).await.unwrap();
    lock_once(&client, "k").await;
}
