//! Users and passwords: by the URL, by the builder, and by a function that is asked before each connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use distlock::{Builder, Client, Credentials, Error};
use distlock_tests::{RedisServer, eventually_eq};

use super::{SOON, ms};

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
    client
        .lock("k")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let clients = server.client_list().await;
    let ours = clients.iter().find(|client| !client.is_harness());
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
        client
            .lock("k")
            .acquire()
            .wait(SOON)
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
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
                match is_away {
                    true => Err("the vault is sealed"),
                    false => Ok(Credentials::new("shop", "p@ss/word")),
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
