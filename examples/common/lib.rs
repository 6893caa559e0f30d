//! Code that the small examples share: how they get their clients, and how they check their results.

use clap::Parser;
use distlock::{Client, Error, MemoryServer};

/// The error of an example that does not do what it should show.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The command line of each example.
#[derive(Debug, Parser)]
struct Args {
    /// Keep the locks in this Redis, e.g. redis://127.0.0.1:6379, instead of in memory
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
}

/// The lock server of an example: Redis, or one in memory.
#[derive(Debug)]
pub struct LockServer {
    redis: Option<String>,
    memory: MemoryServer,
}

impl LockServer {
    /// Reads the server from the command line, and prints logged warnings to stderr.
    pub fn from_args() -> Self {
        tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
            .with_writer(std::io::stderr)
            .init();
        Self {
            redis: Args::parse().redis,
            memory: MemoryServer::new(),
        }
    }

    /// Connects a new client. The examples use one client for each replica.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn client(&self) -> Result<Client, Error> {
        let builder = Client::builder().key_prefix("distlock-example:");
        match &self.redis {
            Some(url) => builder.connect(url).await,
            None => builder.in_memory(&self.memory),
        }
    }
}

/// A client of HTTP for a server in the same process, which no proxy reaches.
///
/// # Errors
/// There is no room for a client.
pub fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder().no_proxy().build()
}

/// Returns an error with the text `what` unless `holds` is true.
///
/// # Errors
/// `holds` is false.
pub fn check(holds: bool, what: &str) -> Result<(), Failure> {
    if holds {
        Ok(())
    } else {
        Err(format!("check failed, expected: {what}").into())
    }
}

/// The programs in the repository's README: `cargo test --doc` compiles them, and runs those that need no server.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The pages of the guide whose programs need both crates.
#[cfg(doctest)]
#[doc = include_str!("../../distlock/src/guide/quick_start.md")]
#[doc = include_str!("../../distlock/src/guide/layer.md")]
struct Guide;
