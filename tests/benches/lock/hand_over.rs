//! How long it takes from one holder to the next.

use std::time::Duration;

use distlock::{Acquire, Client, Guard};
use distlock_tests::{Process, RedisServer};
use redis::{Script, Value};
use tokio::task::JoinHandle;

use crate::bare::{ACQUIRE, Bare, names};
use crate::report;

const TIMES: usize = 100;

/// From the start of a release here to the grant in another process, beside the bare commands that it takes: one script
/// that publishes, and one EVALSHA by the client that hears of it.
pub(crate) async fn two_processes(server: &RedisServer) {
    let client = Client::connect(&server.url()).await.unwrap();
    let mut bare = Bare::new(server).await;
    let me = std::env::current_exe().unwrap();
    let child_of = format!("DISTLOCK_BENCH_CHILD={}", server.url());
    let mut child = Process::start("env", [child_of.as_str(), me.to_str().unwrap()]);
    let within = Duration::from_secs(10);
    let (key, owner, channel) = names(7);
    let (lock, mut ratios) = (client.lock("ours:handover"), Vec::new());
    for _ in 0..TIMES {
        bare.acquire(&key, &owner).await;
        child.send("bare");
        assert_eq!(child.line(within).await, "listening");
        let start = now();
        bare.release(&key, &owner, &channel).await;
        let theirs = granted(&child.line(within).await) - start;

        let guard = lock.acquire().await.unwrap();
        child.send("ours");
        assert_eq!(child.line(within).await, "listening");
        let subscribed = "redisson_lock__channel:{ours:handover}";
        distlock_tests::eventually(within, "the child waits", || async {
            server.pubsub_numsub(subscribed).await == 1
        })
        .await;
        settle(&mut bare).await;
        let start = now();
        guard.release().await.unwrap();
        let ours = granted(&child.line(within).await) - start;
        ratios.push(ours / theirs);
    }
    report(
        "release to grant in another process: time",
        ratios,
        "(1.5 round trips)",
    );
}

/// A subscription is followed by one more attempt, before the waiter sleeps.
async fn settle(bare: &mut Bare) {
    bare.ping().await;
    tokio::time::sleep(Duration::from_millis(2)).await;
}

/// From the start of a release by one client to the grant by another, here: the fair lock's beside the plain one's.
pub(crate) async fn fair(server: &RedisServer) {
    let mut bare = Bare::new(server).await;
    let holder = Client::connect(&server.url()).await.unwrap();
    let waiter = Client::connect(&server.url()).await.unwrap();
    let (plain, fair) = (holder.lock("plain"), holder.fair_lock("fair"));
    let mut ratios = Vec::new();
    for _ in 0..TIMES {
        let guard = plain.acquire().await.unwrap();
        let grant = next_grant(waiter.lock("plain").acquire());
        listened_to(server, "redisson_lock__channel:{plain}").await;
        let theirs = handed_over(&mut bare, guard, grant).await;

        let guard = fair.acquire().await.unwrap();
        let grant = next_grant(waiter.fair_lock("fair").acquire());
        let first = first_in_line(server, "redisson_lock_queue:{fair}").await;
        listened_to(server, &format!("redisson_lock__channel:{{fair}}:{first}")).await;
        let ours = handed_over(&mut bare, guard, grant).await;
        ratios.push(ours / theirs);
    }
    report(
        "fair lock, release to grant by another client: time",
        ratios,
        "at most 1.3",
    );
}

/// A task that waits, and answers when it was granted; it has released then.
fn next_grant(acquire: Acquire) -> JoinHandle<f64> {
    tokio::spawn(async move {
        let guard = acquire.await.unwrap();
        let granted = now();
        guard.release().await.unwrap();
        granted
    })
}

async fn handed_over(bare: &mut Bare, guard: Guard, grant: JoinHandle<f64>) -> f64 {
    settle(bare).await;
    let start = now();
    guard.release().await.unwrap();
    grant.await.unwrap() - start
}

async fn listened_to(server: &RedisServer, channel: &str) {
    let listened_to = || async { server.pubsub_numsub(channel).await == 1 };
    distlock_tests::eventually(Duration::from_secs(10), "one waits", listened_to).await;
}

/// The first waiter in a fair lock's queue, as soon as there is one.
async fn first_in_line(server: &RedisServer, queue: &str) -> String {
    let words = ["LINDEX", queue, "0"];
    let first = || server.try_cli::<Option<String>>(&words);
    let anybody = || async { first().await.unwrap().is_some() };
    distlock_tests::eventually(Duration::from_secs(10), "one stands in line", anybody).await;
    first().await.unwrap().unwrap()
}

fn granted(line: &str) -> f64 {
    line.strip_prefix("granted ")
        .and_then(|ns| ns.parse().ok())
        .unwrap_or_else(|| panic!("the child said {line:?}"))
}

/// The machine's monotonic clock in nanoseconds, the same for both processes.
fn now() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The other process: takes what the first one frees, by the library or by bare commands.
pub(crate) async fn child(url: &str) {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let client = Client::connect(url).await.unwrap();
    let (key, _, channel) = names(7);
    let owner = "1ddad9e6-60bc-45a5-8797-1987353a9077:1";
    let raw = redis::Client::open(url).unwrap();
    let mut connection = raw.get_multiplexed_async_connection().await.unwrap();
    let mut messages = raw.get_async_pubsub().await.unwrap();
    messages.subscribe(&channel).await.unwrap();
    let mut messages = messages.into_on_message();
    let script = Script::new(ACQUIRE);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        println!("listening");
        if line == "ours" {
            let guard = client.lock("ours:handover").acquire().await.unwrap();
            println!("granted {}", now());
            guard.release().await.unwrap();
        } else {
            futures_util::StreamExt::next(&mut messages).await.unwrap();
            let mut call = redis::cmd("EVALSHA");
            call.arg(script.get_hash())
                .arg(1)
                .arg(&key)
                .arg(owner)
                .arg(30_000);
            let _: Value = call.query_async(&mut connection).await.unwrap();
            println!("granted {}", now());
            let _: Value = redis::cmd("DEL")
                .arg(&key)
                .query_async(&mut connection)
                .await
                .unwrap();
        }
    }
}
