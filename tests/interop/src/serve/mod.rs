//! distlock behind the protocol: carries out the requests of the standard input, and answers on the standard output.

mod detached;
mod latches;
mod leaders;
mod locks;
mod permits;
mod semaphores;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Client, Error, PubSub};
use distlock_tests::pulse::monotonic_nanos;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::sync::{Notify, mpsc};

use crate::protocol::{Call, Kind, Request, Response, Settings};

/// The value of a call, or the text of its error.
type Outcome = Result<Value, String>;

/// Serves until the input ends.
///
/// # Errors
/// If it cannot connect.
///
/// # Panics
/// If a line is not a request.
pub async fn run(settings: &Settings) -> Result<(), Error> {
    let mut clients = Vec::new();
    for url in &settings.urls {
        let mut builder =
            Client::builder().watchdog_timeout(Duration::from_millis(settings.watchdog));
        if settings.both_messages {
            builder = builder.pub_sub(PubSub::Both);
        }
        clients.push(builder.connect(url).await?);
    }
    let clients: Arc<[Client]> = clients.into();
    println!("{}", json!({ "ready": clients[0].id().to_string() }));
    let mut workers: HashMap<String, Worker> = HashMap::new();
    let mut lines = BufReader::new(stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let request: Request = serde_json::from_str(&line).expect("a request");
        let worker = workers
            .entry(request.thread.clone())
            .or_insert_with(|| Worker::start(Arc::clone(&clients)));
        if request.call.op == "interrupt" {
            worker.interrupt.notify_waiters();
            let now = monotonic_nanos();
            respond(request.id, now, Ok(json!(true)));
        } else {
            worker.requests.send(request).expect("a worker that serves");
        }
    }
    Ok(())
}

fn respond(id: u64, began: u64, outcome: Outcome) {
    let (value, error) = match outcome {
        Ok(value) => (value, None),
        Err(error) => (Value::Null, Some(error)),
    };
    let response = Response {
        id,
        began,
        ended: monotonic_nanos(),
        value,
        error,
        missing: None,
    };
    println!("{}", serde_json::to_string(&response).expect("JSON"));
}

/// A task that carries out the calls of one thread, one after the other.
struct Worker {
    requests: mpsc::UnboundedSender<Request>,
    interrupt: Arc<Notify>,
}

impl Worker {
    fn start(clients: Arc<[Client]>) -> Self {
        let (requests, mut received) = mpsc::unbounded_channel::<Request>();
        let interrupt = Arc::new(Notify::new());
        let interrupted = Arc::clone(&interrupt);
        tokio::spawn(async move {
            let mut holds = Holds::default();
            while let Some(Request { id, call, .. }) = received.recv().await {
                let began = monotonic_nanos();
                let outcome = tokio::select! {
                    outcome = perform(&clients, &mut holds, &call) => outcome,
                    () = interrupted.notified() => Err(String::from("interrupted")),
                };
                respond(id, began, outcome);
            }
        });
        Self {
            requests,
            interrupt,
        }
    }
}

/// What a worker holds.
#[derive(Debug, Default)]
struct Holds {
    locks: locks::Guards,
    semaphores: semaphores::Permits,
    leaders: leaders::Leaders,
}

async fn perform(clients: &[Client], holds: &mut Holds, call: &Call) -> Outcome {
    if let Some(op) = leaders::Op::of(call) {
        return leaders::perform(&clients[0], &mut holds.leaders, op, name(call)).await;
    }
    match call.kind {
        Kind::Semaphore => semaphores::perform(&clients[0], &mut holds.semaphores, call).await,
        Kind::Permit => permits::perform(&clients[0], call).await,
        Kind::Latch => latches::perform(&clients[0], call).await,
        _ => locks::perform(clients, &mut holds.locks, call).await,
    }
}

/// The name of a call's object, where it has one.
fn name(call: &Call) -> &str {
    &call.names[0]
}

fn millis(millis: Option<u64>) -> Option<Duration> {
    millis.map(Duration::from_millis)
}

fn unknown(call: &Call) -> Outcome {
    Err(format!("no operation of {}: {}", call.kind.name(), call.op))
}

/// A time that is over is a refusal, and no error.
fn unless_busy<T>(answer: Result<T, Error>) -> Result<Option<T>, String> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_busy() => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn text(error: Error) -> String {
    error.to_string()
}

/// A value that tasks of one program share, such as permits: any thread may release them.
type Shared<T> = Mutex<T>;
