//! TLS to a server without TLS, no TLS to a server with TLS, and a handshake without an answer.

use std::time::Duration;

use distlock::{Client, Error};
use distlock_tests::{Authority, Pulse};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::super::ms;
use super::{refused, server, trusting};

#[tokio::test]
async fn tls_to_a_plain_port_says_what_to_write() {
    let (server, authority) = server().await;
    let url = format!("rediss://{}", server.addr());
    // What it makes of the random bytes of a handshake differs: there may be the end of a line among them.
    for _ in 0..4 {
        let error = refused(trusting(&authority), &url).await;
        let text = error.to_string();
        assert!(matches!(error, Error::UnsupportedServer { .. }), "{text}");
        assert!(
            text.contains("speaks no TLS") && text.contains("`redis` and not `rediss`"),
            "{text}"
        );
        assert!(text.contains(&server.addr().to_string()), "{text}");
    }
}

#[tokio::test]
async fn plain_connection_to_a_tls_port_says_what_to_write() {
    let (server, _) = server().await;
    let error = refused(Client::builder(), &format!("redis://{}", server.tls_addr())).await;
    let text = error.to_string();
    assert!(matches!(error, Error::UnsupportedServer { .. }), "{text}");
    assert!(
        text.contains("speaks TLS") && text.contains("`rediss` and not `redis`"),
        "{text}"
    );
}

#[tokio::test]
async fn handshake_that_stalls_ends_by_the_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("rediss://{}", listener.local_addr().unwrap());
    let (pulse, connect_timeout) = (Pulse::start(), ms(1_500));
    let builder = trusting(&Authority::new()).connect_timeout(connect_timeout);
    let silent = async {
        let mut accepted = Vec::new();
        loop {
            accepted.push(listener.accept().await.unwrap());
        }
    };
    let start = Instant::now();
    let error = tokio::select! {
        error = builder.connect(&url) => error.unwrap_err(),
        () = silent => unreachable!("it goes on without end"),
    };
    let took = start.elapsed();
    assert!(
        took >= connect_timeout && took <= pulse.stretch(2 * connect_timeout),
        "{took:?}"
    );
    let Error::Unreachable { after, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*after, connect_timeout);
}

#[tokio::test]
async fn connect_timeout_is_more_than_nothing_and_at_most_a_year() {
    for wrong in [Duration::ZERO, Duration::from_secs(400 * 24 * 3600)] {
        let error = refused_setting(wrong).await;
        assert!(error.to_string().contains("connect_timeout"), "{error}");
    }
}

async fn refused_setting(connect_timeout: Duration) -> Error {
    let builder = Client::builder().connect_timeout(connect_timeout);
    builder.connect("redis://127.0.0.1:1").await.unwrap_err()
}
