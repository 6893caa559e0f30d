//! A process of workers, started, stopped and killed by a run on a real server.

use std::net::SocketAddr;
use std::sync::Arc;

use distlock::Client;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::history::Timestamp;
use crate::time::Time;
use crate::worker::{Sink, Worker, WorkerContext};
use crate::{Workload, error_counter};
use distlock_tests::Disturbed as _;
use distlock_tests::flaws::Flaw;
use distlock_tests::process::Process;
use distlock_tests::resource::ResourceHandle;

/// The configuration of a child, as JSON in its argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChildConfig {
    /// The URL of each server.
    pub(super) urls: Vec<String>,
    /// Where the resource is.
    pub(super) resource: SocketAddr,
    /// The number of the process.
    pub(super) process: u32,
    /// The seed of the run.
    pub(super) seed: u64,
    /// How many workers it has.
    pub(super) tasks: u32,
    /// Until when they work.
    pub(super) end: Timestamp,
    /// What the operations are like.
    pub(super) workload: Workload,
}

impl ChildConfig {
    /// Starts the child: `binary` is the program `chaos` of this package.
    pub(super) fn start(&self, binary: &str) -> Process {
        let config = serde_json::to_string(self).expect("JSON");
        Process::start(binary, ["--worker", &config])
    }

    /// Works, and prints each event as a line of JSON: the main function of a child.
    ///
    /// # Errors
    /// If it cannot connect within some seconds.
    pub async fn run(self) -> Result<(), distlock::Error> {
        error_counter::install();
        let program = connect(&self.urls, &self.workload, None).await?;
        let context = WorkerContext {
            process: self.process,
            seed: self.seed,
            workload: self.workload,
            time: Time::Machine,
            sink: Sink::Lines,
            flaw: None,
            travellers: Default::default(),
        };
        let _pulse = context.pulse();
        let mut workers = JoinSet::new();
        for task in 0..self.tasks {
            let worker = Worker::new(
                &context,
                task,
                &program,
                ResourceHandle::remote(self.resource),
            );
            workers.spawn(worker.work_until(self.end));
        }
        workers.join_all().await;
        for client in program.iter() {
            // The tester judges how long this takes: it knows the stalls.
            client.close(context.workload.lease * 30).await?;
        }
        Ok(())
    }
}

/// A client of each server, with this mistake. Retries while a server is down.
pub(super) async fn connect(
    urls: &[String],
    workload: &Workload,
    flaw: Option<Flaw>,
) -> Result<Arc<[Client]>, distlock::Error> {
    try_join_all(urls.iter().map(|url| connect_one(url, workload, flaw)))
        .await
        .map(Arc::from)
}

async fn connect_one(
    url: &str,
    workload: &Workload,
    flaw: Option<Flaw>,
) -> Result<Client, distlock::Error> {
    let (mut tries, lease) = (0, workload.lease);
    loop {
        let mut builder = Client::builder()
            .watchdog_timeout(lease)
            .lease_margin(workload.margin);
        if let Some(flaw) = flaw {
            builder = builder.flaw(flaw);
        }
        match builder.unavailable_after(lease / 2).connect(url).await {
            Err(_) if tries < 100 => tokio::time::sleep(lease / 20).await,
            connected => return connected,
        }
        tries += 1;
    }
}
