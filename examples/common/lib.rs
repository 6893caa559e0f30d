//! What the small examples share: where their locks are.

use clap::Parser;
use distlock::{Client, Error, MemoryServer};

/// What an example ends with when it does not do what it shows.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What each example is told.
#[derive(Debug, Parser)]
struct Args {
    /// Keep the locks in this Redis, e.g. redis://127.0.0.1:6379, instead of in memory
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
}

/// The lock server that an example was told to use, or one in memory.
#[derive(Debug)]
pub struct LockServer {
    redis: Option<String>,
    memory: MemoryServer,
}

impl LockServer {
    /// The one that the command line names; it shows the log's warnings as well.
    pub fn from_args() -> Self {
        tracing_subscriber::fmt()
            .with_env_filter("warn")
            .with_writer(std::io::stderr)
            .init();
        Self {
            redis: Args::parse().redis,
            memory: MemoryServer::new(),
        }
    }

    /// A client of its own, as each process or replica has one.
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

/// An error that says what should have been.
///
/// # Errors
/// Unless `holds`.
pub fn check(holds: bool, what: &str) -> Result<(), Failure> {
    if holds {
        Ok(())
    } else {
        Err(format!("not so: {what}").into())
    }
}
