//! The layer around plain tower services: the handler, readiness, interrupted requests, and `Held`.

mod handler;
mod held;
mod interrupted;
mod readiness;

use distlock::Client;
use distlock_tower::{Held, LockLayer, LockService};
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use tokio::sync::mpsc;
use tower::{Layer, Service};

use self::readiness::OncePerPoll;

type Text = Full<bytes::Bytes>;

fn by_path(client: &Client) -> LockLayer {
    LockLayer::new(client.clone()).key(|parts: &Parts| parts.uri.path()[1..].to_owned())
}

fn to(path: &str) -> Request<()> {
    Request::get(path).body(()).unwrap()
}

fn text(text: &'static str) -> Response<Text> {
    Response::new(Full::from(text))
}

async fn locked(client: &Client, key: &str) -> bool {
    client.lock(key).is_locked().await.unwrap()
}

#[test]
fn public_types_are_send_sync_clone_and_debug() {
    fn all<T: Send + Sync + Unpin + Clone + std::fmt::Debug + 'static>(_: T) {}
    fn send<T: Send + 'static>(_: &T) {}
    let client = Client::in_memory();
    all(LockLayer::new(client.clone()));
    let layer = by_path(&client);
    all(layer.clone());
    let mut service: LockService<OncePerPoll> = layer.layer(OncePerPoll {
        ready: true,
        calls: mpsc::unbounded_channel().0,
    });
    let future = service.call(to("/k"));
    send(&future);
    assert_eq!(format!("{future:?}"), r#"LockFuture("Entering")"#);
    fn held<T: Send + Sync + Unpin + Clone + 'static>() {}
    held::<Held>();
    held::<LockService<()>>();
}
