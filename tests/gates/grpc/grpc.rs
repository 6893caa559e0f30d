//! gRPC by tonic, server and client: what its clients make of the layer's answers, and its handlers of the hold.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use distlock::test_util::sizes;
use distlock::{Client, MemoryServer, Mode};
use distlock_tests::Disturbed as _;
use distlock_tests::eventually;
use distlock_tests::faults::{Fault, Faults, Op};
use distlock_tower::{Held, HoldUntil, LockLayer};
use futures_util::{Stream, StreamExt as _, stream};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::codegen::http;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest as Question, HealthCheckResponse as Answer};
use tower::{ServiceBuilder, ServiceExt as _};
use tower_http::map_request_body::MapRequestBodyLayer;

const SEC: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(10);

/// A service with a unary and a streaming method, which does as the question says.
struct Doctor {
    locks: Client,
    inside: Arc<AtomicUsize>,
}

type Answers = Pin<Box<dyn Stream<Item = Result<Answer, Status>> + Send>>;

#[tonic::async_trait]
impl Health for Doctor {
    type WatchStream = Answers;

    async fn check(&self, request: Request<Question>) -> Result<Response<Answer>, Status> {
        let held = request.extensions().get::<Held>().cloned();
        let held = held.ok_or_else(|| Status::internal("no hold"))?;
        let again = self.locks.lock(held.key()).try_acquire().await;
        assert!(again.unwrap().is_some(), "inside of its own lock");
        match request.into_inner().service.as_str() {
            "stuck" => std::future::pending().await,
            "fails" => Err(Status::already_exists("its own")),
            _ => {
                let others = self.inside.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(SEC / 200).await;
                self.inside.fetch_sub(1, Ordering::SeqCst);
                Ok(Response::new(number(others)))
            }
        }
    }

    async fn watch(&self, request: Request<Question>) -> Result<Response<Answers>, Status> {
        let three = stream::iter(0..3).map(|n| Ok(number(n)));
        let answers: Answers = match request.into_inner().service.as_str() {
            "stuck" => Box::pin(three.chain(stream::pending())),
            _ => Box::pin(three),
        };
        Ok(Response::new(answers))
    }
}

fn number(n: usize) -> Answer {
    Answer {
        status: i32::try_from(n).unwrap(),
    }
}

fn question(tenant: &str, what: &str) -> Request<Question> {
    let mut request = Request::new(Question {
        service: what.to_owned(),
    });
    request
        .metadata_mut()
        .insert("x-tenant", tenant.parse().unwrap());
    request
}

/// Locks the tenant of the metadata.
fn layer(client: &Client) -> LockLayer {
    LockLayer::new(client)
        .key_template("<header.x-tenant>")
        .wait(SOON)
}

/// A server with this layer, for as long as the set lives, and a client of it.
async fn serve(layer: LockLayer, locks: &Client) -> (HealthClient<Channel>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let doctor = Doctor {
        locks: locks.clone(),
        inside: Arc::default(),
    };
    let server = Server::builder()
        .layer(layer)
        .add_service(HealthServer::new(doctor));
    let mut servers = JoinSet::new();
    servers.spawn(async {
        server
            .serve_with_incoming(TcpIncoming::from(listener))
            .await
            .unwrap()
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let client = HealthClient::new(endpoint.connect().await.unwrap());
    (client, servers)
}

async fn freed(client: &Client, key: &str) {
    let lock = client.lock(key);
    let free = || async { (!lock.is_locked().await.unwrap()).then_some(()).ok_or(()) };
    eventually(SOON, "the key is free", free).await;
}

#[tokio::test]
async fn calls_of_a_tenant_take_turns_and_each_sees_its_hold() {
    let locks = Client::in_memory();
    let (client, _server) = serve(layer(&locks), &locks).await;
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let mut client = client.clone();
        calls.spawn(async move { client.check(question("acme", "")).await });
    }
    for answer in calls.join_all().await {
        assert_eq!(answer.unwrap().into_inner(), number(0));
    }
    assert!(!locks.lock("acme").is_locked().await.unwrap());
    let own = client
        .clone()
        .check(question("acme", "fails"))
        .await
        .unwrap_err();
    assert_eq!(
        (own.code(), own.message()),
        (Code::AlreadyExists, "its own")
    );
    assert!(!locks.lock("acme").is_locked().await.unwrap());
}

async fn refused(layer: LockLayer, locks: &Client, question: Request<Question>) -> Code {
    let (mut client, _server) = serve(layer, locks).await;
    let status = client.check(question).await.unwrap_err();
    assert!(
        !status.message().is_empty() && !status.message().contains("acme"),
        "{status}"
    );
    status.code()
}

#[tokio::test]
async fn each_refusal_is_the_status_of_its_kind() {
    let locks = Client::in_memory();
    let _taken = locks.lock("acme").acquire().await.unwrap();
    let ask = || question("acme", "");
    let at_once = layer(&locks).wait(Duration::ZERO);
    assert_eq!(refused(at_once, &locks, ask()).await, Code::Aborted);
    let crowded = layer(&locks).max_waiters(0);
    assert_eq!(
        refused(crowded, &locks, ask()).await,
        Code::ResourceExhausted
    );
    let keyless = Request::new(Question::default());
    assert_eq!(
        refused(layer(&locks), &locks, keyless).await,
        Code::InvalidArgument
    );
    let two_tokens = LockLayer::new(&locks)
        .key(|_: &tonic::codegen::http::request::Parts| ["a", "b"])
        .mode(Mode::Fenced);
    assert_eq!(refused(two_tokens, &locks, ask()).await, Code::Internal);
    let cut_short = layer(&locks).max_hold(SEC / 20);
    assert_eq!(
        refused(cut_short, &locks, question("free", "stuck")).await,
        Code::Unknown
    );

    let faults = Faults::new();
    faults.always(Op::Attempt, Fault::FailBefore);
    let builder = Client::builder()
        .faults(&faults)
        .unavailable_after(SEC / 10);
    let down = builder.in_memory(&MemoryServer::new()).unwrap();
    assert_eq!(refused(layer(&down), &down, ask()).await, Code::Unavailable);
}

#[tokio::test]
async fn hold_lasts_as_long_as_a_stream_of_answers() {
    let locks = Client::in_memory();
    let (mut client, _server) = serve(layer(&locks).hold_until(HoldUntil::Body), &locks).await;
    let mut answers = client
        .watch(question("acme", "stuck"))
        .await
        .unwrap()
        .into_inner();
    for n in 0..3 {
        assert_eq!(answers.message().await.unwrap(), Some(number(n)));
    }
    assert!(locks.lock("acme").is_locked().await.unwrap());
    // Hangs up.
    drop(answers);
    freed(&locks, "acme").await;

    let ended = client
        .watch(question("acme", ""))
        .await
        .unwrap()
        .into_inner();
    let ended: Vec<_> = ended.map(Result::unwrap).collect().await;
    assert_eq!(ended, [0, 1, 2].map(number));
    freed(&locks, "acme").await;
}

#[tokio::test]
async fn stream_whose_lock_is_lost_ends_in_an_error() {
    let locks = Client::in_memory();
    let layer = layer(&locks).hold_until(HoldUntil::Body).max_hold(SEC / 2);
    let (mut client, _server) = serve(layer, &locks).await;
    let mut answers = client
        .watch(question("acme", "stuck"))
        .await
        .unwrap()
        .into_inner();
    let end = async {
        loop {
            match answers.message().await {
                Ok(Some(_)) => {}
                ended => break ended,
            }
        }
    };
    let ended = tokio::time::timeout(SOON, end).await.unwrap();
    assert!(ended.is_err(), "{ended:?}");
    freed(&locks, "acme").await;
}

/// tonic's body cannot be built around another one, and its services take any body.
#[tokio::test(start_paused = true)]
async fn call_whose_body_stops_arriving_is_cut_if_the_layer_gets_an_axum_body() {
    let locks = Client::in_memory();
    let doctor = Doctor {
        locks: locks.clone(),
        inside: Arc::default(),
    };
    let service = HealthServer::new(doctor);
    let server = Server::builder()
        .layer(MapRequestBodyLayer::new(Body::new))
        .layer(layer(&locks));
    // Its layers fit its services.
    let incoming = stream::pending::<std::io::Result<tokio::net::TcpStream>>();
    let serving = server.clone().add_service(service.clone());
    drop(serving.serve_with_incoming(incoming));

    let layers = ServiceBuilder::new()
        .layer(MapRequestBodyLayer::new(Body::new))
        .layer(layer(&locks));
    let call = http::Request::post("/grpc.health.v1.Health/Check")
        .header("content-type", "application/grpc")
        .header("x-tenant", "acme");
    let slow = Body::from_stream(stream::pending::<Result<Vec<u8>, Status>>());
    let call = call.body(tonic::body::Body::new(slow)).unwrap();
    let answer = tokio::time::timeout(100 * SEC, layers.service(service).oneshot(call)).await;
    let status = &answer.expect("an answer").unwrap().into_parts().0.headers["grpc-status"];
    assert_eq!(status, "4");
    assert!(!locks.lock("acme").is_locked().await.unwrap());
}

#[tokio::test]
async fn call_that_is_dropped_while_it_waits_leaves_the_queue() {
    let locks = Client::in_memory();
    let (client, _server) = serve(layer(&locks), &locks).await;
    let taken = locks.lock("acme").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let mut client = client.clone();
        async move { client.check(question("acme", "")).await }
    });
    let waiters = async |count: usize| {
        let seen = || async {
            let waiters = sizes(&locks).waiters;
            (waiters == count).then_some(()).ok_or(waiters)
        };
        eventually(SOON, "so many wait", seen).await;
    };
    waiters(1).await;
    waiting.abort();
    waiters(0).await;
    taken.release().await.unwrap();
    freed(&locks, "acme").await;
}
