//! Routes under the layer, in real HTTP: two servers that share a Redis, and load from another process.
//!
//! Handlers report to a watch when they are inside. It must never see two with one key, and Redis must be left empty.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod outside_runtime;
mod slow_body;
mod watch;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::routing::post;
use distlock::Client;
use distlock_tests::{Process, RedisServer, eventually, size};
use distlock_tower::{HoldUntil, LockLayer};
use futures_util::stream;
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::watch::Watch;

/// A load takes some seconds; this is for a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

/// Of the watchdog; a server that restarts is back long before.
const LEASE: Duration = Duration::from_secs(10);

const KEYS: u32 = 10;

fn requests() -> usize {
    size(600, 10_000)
}

async fn work(State(watch): State<Arc<Watch>>, Path(key): Path<u32>) -> &'static str {
    let _inside = watch.enter(key);
    tokio::task::yield_now().await;
    "done"
}

/// The same with a body in pieces, inside until the last one was taken.
async fn stream_out(State(watch): State<Arc<Watch>>, Path(key): Path<u32>) -> impl IntoResponse {
    let inside = watch.enter(key);
    let pieces = stream::unfold((inside, 0), |(inside, piece)| async move {
        tokio::task::yield_now().await;
        (piece < 3).then(|| (Ok::<_, Infallible>(vec![b'x'; 20_000]), (inside, piece + 1)))
    });
    Body::from_stream(pieces)
}

/// What guards the routes of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    None,
    Response,
    Body,
}

/// Two servers and what they share.
struct Stage {
    redis: RedisServer,
    locks: Vec<Client>,
    servers: Vec<SocketAddr>,
    watch: Arc<Watch>,
}

impl Stage {
    async fn new(guard: Guard) -> Self {
        let redis = RedisServer::builder()
            .appendonly(true)
            .arg("--appendfsync", "always");
        let mut stage = Self {
            redis: redis.start().await,
            locks: Vec::new(),
            servers: Vec::new(),
            watch: Arc::default(),
        };
        for _ in 0..2 {
            stage.serve(guard).await;
        }
        stage
    }

    async fn serve(&mut self, guard: Guard) {
        let builder = Client::builder().watchdog_timeout(LEASE);
        let locks = builder.connect(&self.redis.url()).await.unwrap();
        let layer = LockLayer::new(locks.clone())
            .key(|Path(key): Path<u32>| format!("work:{key}"))
            .wait(PATIENCE);
        let route = match guard {
            Guard::None => post(work),
            Guard::Response => post(work).route_layer(layer),
            Guard::Body => post(stream_out).route_layer(layer.hold_until(HoldUntil::Body)),
        };
        let app = Router::new()
            .route("/work/{key}", route)
            .with_state(Arc::clone(&self.watch));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.servers.push(listener.local_addr().unwrap());
        tokio::spawn(axum::serve(listener, app).into_future());
        self.locks.push(locks);
    }

    fn load(&self, requests: usize, how: &[&str]) -> Process {
        let urls = self.servers.iter().map(|addr| format!("http://{addr}"));
        let numbers = [
            ("--connections", 64),
            ("--requests", requests),
            ("--keys", KEYS as usize),
        ];
        let numbers = numbers.map(|(name, number)| format!("{name}={number}"));
        let how = how.iter().map(|word| (*word).to_owned());
        Process::start(
            env!("CARGO_BIN_EXE_http_load"),
            numbers.into_iter().chain(how).chain(urls),
        )
    }

    /// How often requests ended with which status, when all have ended.
    async fn seen(&self, load: &mut Process) -> BTreeMap<String, usize> {
        serde_json::from_str(&load.line(PATIENCE).await).unwrap()
    }

    async fn is_left_clean(&self) {
        eventually(LEASE / 2, "no handler inside", async || {
            self.watch.is_empty()
        })
        .await;
        eventually(LEASE / 2, "no lock left in Redis", async || {
            let keys = self.redis.keys().await;
            if keys.is_empty() { Ok(()) } else { Err(keys) }
        })
        .await;
        for locks in &self.locks {
            locks.close(LEASE).await.unwrap();
        }
        assert_eq!(self.watch.overlaps(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_many_connections_on_ten_keys_take_turns() {
    let requests = requests();
    let stage = Stage::new(Guard::Response).await;
    let seen = stage.seen(&mut stage.load(requests, &[])).await;
    assert_eq!(seen, BTreeMap::from([("200".to_owned(), requests)]));
    assert_eq!(stage.watch.entered(), requests);
    stage.is_left_clean().await;
}

/// What the watch is for: it must see something where there is something to see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_layer_requests_overlap() {
    let stage = Stage::new(Guard::None).await;
    let mut load = stage.load(usize::MAX, &[]);
    let overlap = async || stage.watch.overlaps() > 0;
    eventually(PATIENCE, "two handlers of a key at once", overlap).await;
    load.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_hang_up_leave_nothing_behind() {
    let requests = requests();
    let stage = Stage::new(Guard::Response).await;
    let seen = stage.seen(&mut stage.load(requests, &["--cut=20"])).await;
    let (cut, done) = (seen["cut"], seen["200"]);
    assert!(
        cut > requests / 20 && done >= requests / 2 && cut + done == requests,
        "{seen:?}"
    );
    stage.is_left_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_slow_readers_take_are_sent_one_at_a_time() {
    let stage = Stage::new(Guard::Body).await;
    let requests = requests();
    let seen = stage.seen(&mut stage.load(requests, &["--slow"])).await;
    assert_eq!(seen, BTreeMap::from([("200".to_owned(), requests)]));
    assert_eq!(stage.watch.entered(), requests);
    stage.is_left_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_are_cut_leave_nothing_behind() {
    let stage = Stage::new(Guard::Body).await;
    let requests = requests();
    let how = ["--slow", "--cut=40"];
    let seen = stage.seen(&mut stage.load(requests, &how)).await;
    assert!(
        seen["cut"] > requests / 20 && seen["200"] >= requests / 2,
        "{seen:?}"
    );
    stage.is_left_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_that_restarts_lets_no_two_in() {
    let requests = requests();
    let mut stage = Stage::new(Guard::Response).await;
    let mut load = stage.load(requests, &[]);
    for restart in 1..=3 {
        let watch = Arc::clone(&stage.watch);
        let some_more = requests / 5 * restart;
        let entered = async || watch.entered() >= some_more;
        eventually(PATIENCE, "more requests", entered).await;
        stage.redis.kill();
        // Long enough for requests to come while nobody answers them.
        sleep(Duration::from_millis(100)).await;
        stage.redis.restart().await;
    }
    let seen = stage.seen(&mut load).await;
    let answered: usize = seen.values().sum();
    assert!(
        answered == requests && seen["200"] > requests / 2,
        "{seen:?}"
    );
    assert!(
        seen.keys()
            .all(|end| ["200", "503"].contains(&end.as_str())),
        "{seen:?}"
    );
    stage.is_left_clean().await;
}
