//! The kind of lock that a layer takes, and quorums.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use distlock::test_util::modes;
use distlock::{Client, MemoryServer, Mode, Quorum};
use distlock_tower::{Held, LockLayer, LockService};
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::Full;
use tokio::sync::Barrier;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Answer, DEADLINE};

fn layer(client: &Client) -> LockLayer {
    LockLayer::new(client)
        .key(|_: &Parts| "k")
        .wait(Duration::ZERO)
}

async fn done(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("done")))
}

fn by(method: Method) -> Request<()> {
    Request::builder().method(method).body(()).unwrap()
}

async fn answer(layer: &LockLayer, method: Method) -> Answer {
    let service: LockService<_> = layer.layer(service_fn(done));
    Answer::of(service.oneshot(by(method)).await.unwrap()).await
}

#[tokio::test]
async fn two_readers_are_in_the_handler_at_the_same_time() {
    let both = Arc::new(Barrier::new(2));
    let handler = service_fn(|_: Request<()>| {
        let both = Arc::clone(&both);
        async move {
            both.wait().await;
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
        }
    });
    let service = layer(&Client::in_memory()).read_write().layer(handler);
    let read = |method| service.clone().oneshot(by(method));
    let together = async { tokio::join!(read(Method::GET), read(Method::HEAD)) };
    let (get, head) = tokio::time::timeout(DEADLINE, together).await.unwrap();
    assert_eq!(
        (get.unwrap().status(), head.unwrap().status()),
        (200.try_into().unwrap(), 200.try_into().unwrap())
    );
}

#[tokio::test]
async fn writers_and_readers_exclude_each_other() {
    let client = Client::in_memory();
    let layer = layer(&client).read_write();
    let (read, write) = (
        [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE],
        [Method::POST, Method::PUT, Method::PATCH, Method::DELETE],
    );

    let reading = client.rw_lock("k").read().acquire().await.unwrap();
    for method in read.clone() {
        assert_eq!(answer(&layer, method).await.status, 200);
    }
    for method in write.clone() {
        answer(&layer, method).await.is_problem("busy", 409, true);
    }
    reading.release().await.unwrap();

    let writing = client.rw_lock("k").write().acquire().await.unwrap();
    for method in read.into_iter().chain(write.clone()) {
        answer(&layer, method).await.is_problem("busy", 409, true);
    }
    writing.release().await.unwrap();
    for method in write {
        assert_eq!(answer(&layer, method).await.status, 200);
    }
}

#[tokio::test]
async fn each_mode_takes_the_lock_of_its_kind() {
    let client = Client::in_memory();
    for mode in modes() {
        let key = mode.to_string();
        let service = LockLayer::new(&client)
            .key_template(&key)
            .mode(mode)
            .layer(service_fn(async |_: Request<()>| {
                let is_entered_again = client.lock(&key).try_acquire().await;
                let is_read = client.rw_lock(&key).read().try_acquire().await;
                let seen = (
                    matches!(is_entered_again, Ok(Some(_))),
                    matches!(is_read, Ok(Some(_))),
                );
                assert_eq!(seen, expected(mode), "{mode}");
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
            }));
        assert_eq!(
            service.oneshot(Request::new(())).await.unwrap().status(),
            200
        );
    }
}

/// Whether the reentrant lock and the read lock of the key can be re-entered inside a lock of this mode.
fn expected(mode: Mode) -> (bool, bool) {
    match mode {
        Mode::Read | Mode::Write => (false, true),
        Mode::Reentrant => (true, false),
        _ => (false, false),
    }
}

fn servers() -> [Client; 3] {
    [(); 3].map(|()| Client::builder().in_memory(&MemoryServer::new()).unwrap())
}

#[tokio::test]
async fn majority_of_a_redlock_decides() {
    let servers = servers();
    let layer = LockLayer::new(Quorum::new(servers.clone()))
        .key(|_: &Parts| "k")
        .wait(Duration::ZERO);
    let first = servers[0].lock("k").acquire().await.unwrap();
    let service = layer.clone().layer(service_fn(async |_: Request<()>| {
        for server in &servers[1..] {
            assert!(server.lock("k").is_locked().await.unwrap());
        }
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
    }));
    assert_eq!(
        service.oneshot(Request::new(())).await.unwrap().status(),
        200
    );
    let _second = servers[1].lock("k").acquire().await.unwrap();
    answer(&layer, Method::POST)
        .await
        .is_problem("busy", 409, true);
    drop(first);
}

#[tokio::test]
async fn unsupported_modes_are_500() {
    let client = Client::in_memory();
    let two_tokens = LockLayer::new(&client)
        .key(|_: &Parts| ["a", "b"])
        .mode(Mode::Fenced);
    let red_lock = || LockLayer::new(Quorum::new(servers()));
    let two_keys = red_lock().key(|_: &Parts| ["a", "b"]);
    for layer in [two_tokens, two_keys] {
        answer(&layer, Method::POST)
            .await
            .is_problem("config", 500, false);
    }
}

#[tokio::test]
async fn only_fenced_holds_have_a_token_and_each_a_higher_one() {
    let respond_with_token = service_fn(async |request: Request<()>| {
        let token = request.extensions().get::<Held>().unwrap().fencing_token();
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(format!(
            "{}",
            token.unwrap_or(0)
        ))))
    });
    let token = async |layer: &LockLayer| {
        let response = layer
            .clone()
            .layer(respond_with_token)
            .oneshot(Request::new(()));
        let answer = Answer::of(response.await.unwrap()).await;
        answer.text.parse::<u64>().unwrap()
    };
    let layer = layer(&Client::in_memory());
    assert_eq!(token(&layer).await, 0);
    let fenced = layer.mode(Mode::Fenced);
    let first = token(&fenced).await;
    assert!(first > 0 && token(&fenced).await > first);
}

/// Two clients of one server in a quorum would wait for each other: a mistake in the configuration, and no busy lock.
#[tokio::test(start_paused = true)]
async fn quorum_of_clients_of_one_server_is_a_misconfiguration_and_not_busy() {
    let servers = [MemoryServer::new(), MemoryServer::new()];
    let client = |server: &MemoryServer| Client::builder().in_memory(server).unwrap();
    let clients = [&servers[0], &servers[0], &servers[1]].map(client);
    let other = client(&servers[0]);
    for wait in [Duration::ZERO, Duration::from_secs(5)] {
        let layer = LockLayer::new(Quorum::new(clients.clone()));
        let layer = layer.key(|_: &Parts| "k").wait(wait);
        answer(&layer, Method::POST)
            .await
            .is_problem("config", 500, false);
    }
    // Nothing of it is kept.
    other
        .lock("k")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
