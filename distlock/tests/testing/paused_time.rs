//! A client of a real server does not work with paused time, and says so.

use std::net::TcpListener;
use std::time::Duration;

use distlock::{Client, Error};
use tokio::time::{Instant, resume, sleep, timeout};

#[tokio::test(start_paused = true)]
async fn connecting_with_paused_time_is_refused_at_once_and_nothing_is_sent() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let address = server.local_addr().unwrap();
    let url = format!("redis://user:secret@{address}");
    let start = Instant::now();
    let refused = Client::connect(&url).await.unwrap_err();
    assert!(matches!(refused, Error::TimePaused { .. }), "{refused:?}");
    assert!(refused.is_permanent() && start.elapsed().is_zero());
    let text = refused.to_string();
    assert!(text.contains(&address.to_string()), "{text}");
    assert!(
        text.contains("tokio's time is paused") && text.contains("Client::in_memory"),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
    assert!(server.accept().is_err());

    let invalid = Client::connect("http://localhost").await.unwrap_err();
    assert!(matches!(invalid, Error::InvalidUrl { .. }), "{invalid:?}");

    resume();
    let connecting = tokio::spawn(async move { Client::connect(&url).await.err() });
    let connected = async {
        while server.accept().is_err() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), connected).await.unwrap();
    connecting.abort();
}
