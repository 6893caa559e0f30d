//! Load for an HTTP server, from a process apart: a number of connections, each with one request at a time.
//!
//! `http_load --connections N --requests N --keys N [--cut MS] [--slow] URL..` ends with a line of JSON: how many requests
//! ended with each status, how many were cut by the client, and how many failed otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Parser;
use rand::RngExt;
use reqwest::{Client, StatusCode};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

#[derive(Clone, Debug, Parser)]
struct Args {
    #[arg(long)]
    connections: usize,

    /// Number of requests of all connections together
    #[arg(long)]
    requests: usize,

    #[arg(long)]
    keys: u32,

    /// Hang up on every second request within this many milliseconds
    #[arg(long)]
    cut: Option<u64>,

    /// Take a pause after each piece of a body
    #[arg(long)]
    slow: bool,

    /// The servers, in turn
    urls: Vec<String>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Answered(StatusCode),
    Cut,
    Failed,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Arc::new(Args::parse());
    let begun = Arc::new(AtomicUsize::new(0));
    let mut connections = JoinSet::new();
    for number in 0..args.connections {
        connections.spawn(connection(number, Arc::clone(&args), Arc::clone(&begun)));
    }
    let mut all = BTreeMap::<String, usize>::new();
    while let Some(ends) = connections.join_next().await {
        for (end, count) in ends? {
            let name = match end {
                End::Answered(status) => status.as_u16().to_string(),
                End::Cut => "cut".to_owned(),
                End::Failed => "failed".to_owned(),
            };
            *all.entry(name).or_default() += count;
        }
    }
    println!("{}", serde_json::to_string(&all)?);
    Ok(())
}

/// A client with one connection, which sends requests until enough were sent by all.
async fn connection(
    number: usize,
    args: Arc<Args>,
    begun: Arc<AtomicUsize>,
) -> BTreeMap<End, usize> {
    let http = Client::builder()
        .no_proxy()
        .pool_max_idle_per_host(1)
        .build();
    let http = http.expect("a client without TLS");
    let mut ends = BTreeMap::new();
    loop {
        let request = begun.fetch_add(1, Ordering::Relaxed);
        if request >= args.requests {
            return ends;
        }
        let key = rand::rng().random_range(0..args.keys);
        let url = format!("{}/work/{key}", args.urls[number % args.urls.len()]);
        let answer = ask(&http, &url, args.slow);
        let end = match args.cut.filter(|_| request.is_multiple_of(2)) {
            Some(longest) => {
                let patience = Duration::from_micros(rand::rng().random_range(0..longest * 1_000));
                timeout(patience, answer).await.unwrap_or(End::Cut)
            }
            None => answer.await,
        };
        *ends.entry(end).or_default() += 1;
    }
}

/// Sends a request and reads the whole of its answer.
async fn ask(http: &Client, url: &str, slow: bool) -> End {
    let Ok(mut answer) = http.post(url).send().await else {
        return End::Failed;
    };
    let status = answer.status();
    loop {
        match answer.chunk().await {
            Ok(Some(_)) if slow => sleep(Duration::from_millis(1)).await,
            Ok(Some(_)) => {}
            Ok(None) => return End::Answered(status),
            Err(_) => return End::Failed,
        }
    }
}
