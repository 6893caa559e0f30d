//! A running program of either side.
//!
//! # Invariants
//! 1. The program ends with the value and with the test process (see [`distlock_tests::guardian`]).
//! 2. A call is sent when it is made, also if nobody awaits it yet.
//! 3. A call of a program that has ended is answered with [`Failure::Ended`].

use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock_tests::Process;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::protocol::{Call, Failure, Grant, Kind, Request, Response, Settings};

/// A start takes two seconds; this is for a machine that does much else.
const START: Duration = Duration::from_secs(60);

/// Longer than any call of a test. A call that is not answered by then shows a lock that nobody wakes.
const ANSWER: Duration = Duration::from_secs(25);

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The program with distlock, by its path.
    Rust(&'static str),
    /// The program with this version of Redisson.
    Java(&'static str),
}

impl Side {
    /// The versions of Redisson, the newest first.
    ///
    /// # Panics
    /// Never: the file has two lines.
    #[must_use]
    pub fn versions() -> [&'static str; 2] {
        let mut versions = include_str!("../redisson/versions").lines();
        [(); 2].map(|()| versions.next().expect("two versions"))
    }

    /// Whether it is Redisson.
    #[must_use]
    pub fn is_java(self) -> bool {
        matches!(self, Self::Java(_))
    }

    fn start(self, settings: &Settings) -> Process {
        let settings = serde_json::to_string(settings).expect("JSON");
        let version = match self {
            Self::Rust(binary) => return Process::start(binary, [settings]),
            Self::Java(version) => version,
        };
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("redisson/target");
        let built: PathBuf = built.join(version);
        assert!(
            built.join("built").exists(),
            "the program with Redisson {version} is not built: `bash .ci/interop` builds it and plays these tests"
        );
        let classes = format!("{0}/peer.jar:{0}/lib/*", built.display());
        // Many of them run at once, each for a short time.
        let java = [
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            &classes,
            "distlock.peer.Main",
            &settings,
        ];
        Process::start("java", java)
    }
}

type Answers = Mutex<Option<HashMap<u64, oneshot::Sender<Response>>>>;

/// A running program.
#[derive(Debug)]
pub struct Peer {
    side: Side,
    process: Mutex<Process>,
    // `None` once the output has ended.
    pending: Arc<Answers>,
    next: AtomicU64,
}

impl Peer {
    /// Starts a program and waits until it is connected.
    ///
    /// # Panics
    /// If it is not built or does not connect; with its stderr.
    pub async fn start(side: Side, settings: &Settings) -> Arc<Self> {
        let mut process = side.start(settings);
        let ready = process.json(START).await;
        assert!(ready["ready"].is_string(), "an odd first line: {ready}");
        let mut lines = process.take_output();
        let pending: Arc<Answers> = Arc::new(Mutex::new(Some(HashMap::new())));
        let answers = Arc::clone(&pending);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let response: Response = serde_json::from_str(&line)
                    .unwrap_or_else(|error| panic!("{error} in the answer {line:?}"));
                let waiting = answers
                    .lock()
                    .as_mut()
                    .and_then(|all| all.remove(&response.id));
                if let Some(waiting) = waiting {
                    // The test may have stopped waiting for it.
                    let _ = waiting.send(response);
                }
            }
            // Dropping the senders answers all that still wait.
            *answers.lock() = None;
        });
        Arc::new(Self {
            side,
            process: Mutex::new(process),
            pending,
            next: AtomicU64::new(1),
        })
    }

    /// Which program it is.
    #[must_use]
    pub fn side(&self) -> Side {
        self.side
    }

    /// A thread of the program, which begins with its first call.
    #[must_use]
    pub fn actor(self: &Arc<Self>, thread: impl Into<String>) -> Actor {
        Actor {
            peer: Arc::clone(self),
            thread: thread.into(),
        }
    }

    /// SIGKILL. On return the process has ended.
    pub fn kill(&self) {
        self.process.lock().kill();
    }

    fn stderr(&self) -> String {
        self.process.lock().stderr()
    }
}

/// A thread of a program: a Java thread, or a task that keeps its guards.
#[derive(Clone, Debug)]
pub struct Actor {
    peer: Arc<Peer>,
    thread: String,
}

impl Actor {
    /// The program.
    #[must_use]
    pub fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Sends a call.
    pub fn call(&self, call: Call) -> Pending {
        let id = self.peer.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let what = format!("{} {} {:?}", call.op, call.kind.name(), call.names);
        let is_open = match self.peer.pending.lock().as_mut() {
            Some(pending) => pending.insert(id, sender).is_none(),
            None => false,
        };
        if is_open {
            let thread = self.thread.clone();
            let request = Request { id, thread, call };
            let line = serde_json::to_string(&request).expect("JSON");
            let mut process = self.peer.process.lock();
            // A process that was killed reads nothing.
            if process.exited().is_none() {
                process.send(line);
            }
        }
        Pending {
            receiver,
            what,
            peer: Arc::clone(&self.peer),
        }
    }

    /// Asks for an object; see [`Call`] for the times.
    pub fn acquire(&self, lock: &(Kind, Vec<String>), wait: Option<u64>) -> Pending {
        let mut call = Call::new("acquire", lock.0, &lock.1);
        call.wait = wait;
        self.call(call)
    }

    /// Acquires an object that has to be free.
    ///
    /// # Panics
    /// If it is not.
    pub async fn take(&self, lock: &(Kind, Vec<String>)) -> Grant {
        let granted = self.acquire(lock, Some(0)).grant().await;
        granted.unwrap_or_else(|| panic!("{lock:?} is not free for {self}"))
    }

    /// Acquires an object if it is free.
    ///
    /// # Panics
    /// If the answer is an error.
    pub async fn try_take(&self, lock: &(Kind, Vec<String>)) -> Option<Grant> {
        self.acquire(lock, Some(0)).grant().await
    }

    /// Ends a hold.
    pub fn release(&self, lock: &(Kind, Vec<String>)) -> Pending {
        self.give_back(lock, None)
    }

    /// Returns a permit that has an id, or ends a hold that has none.
    pub fn give_back(&self, lock: &(Kind, Vec<String>), permit: Option<String>) -> Pending {
        let mut call = Call::new("release", lock.0, &lock.1);
        call.permit = permit;
        self.call(call)
    }

    /// Calls an operation without settings, and returns its value.
    ///
    /// # Panics
    /// If it fails.
    pub async fn ask<T: DeserializeOwned>(&self, op: &str, lock: &(Kind, Vec<String>)) -> T {
        self.call(Call::new(op, lock.0, &lock.1)).value().await
    }

    /// Calls an operation with a number.
    ///
    /// # Panics
    /// If it fails.
    pub async fn count<T: DeserializeOwned>(
        &self,
        op: &str,
        lock: &(Kind, Vec<String>),
        count: u32,
    ) -> T {
        let call = Call::new(op, lock.0, &lock.1).count(count);
        self.call(call).value().await
    }

    /// Whether the Java thread sleeps until a message comes.
    ///
    /// # Panics
    /// If it is not one of Java.
    pub async fn is_asleep(&self) -> bool {
        let call = Call::new("is_asleep", Kind::Reentrant, &[]);
        self.call(call).value().await
    }

    /// Interrupts the call that the thread carries out: drops its future, or interrupts the Java thread.
    pub async fn interrupt(&self) {
        let call = Call::new("interrupt", Kind::Reentrant, &[]);
        self.call(call).value::<bool>().await;
    }
}

impl Display for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {:?}", self.thread, self.peer.side)
    }
}

/// A call that was sent.
#[derive(Debug)]
#[must_use]
pub struct Pending {
    receiver: oneshot::Receiver<Response>,
    what: String,
    peer: Arc<Peer>,
}

/// The answer to a call, with its times in nanoseconds of the machine's monotonic clock.
#[derive(Clone, Debug)]
pub struct Answer<T = Value> {
    /// When the call began.
    pub began: u64,
    /// When it ended.
    pub ended: u64,
    /// What it returned.
    pub value: T,
}

impl Pending {
    /// The answer, whenever it comes.
    ///
    /// # Errors
    /// The error or exception of the other side.
    pub async fn answer(self) -> Result<Answer, Failure> {
        let response = self.receiver.await.map_err(|_| Failure::Ended)?;
        let Response {
            began,
            ended,
            value,
            error,
            missing,
            ..
        } = response;
        match (error, missing) {
            (Some(error), _) => Err(Failure::Error(error)),
            (_, Some(missing)) => Err(Failure::Missing(missing)),
            _ => Ok(Answer {
                began,
                ended,
                value,
            }),
        }
    }

    /// Whether the answer has come.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        !self.receiver.is_empty() || self.receiver.is_terminated()
    }

    /// The answer with its times.
    ///
    /// # Panics
    /// If it is an error, is of another type, or does not come in time; with the stderr of the program.
    pub async fn timed<T: DeserializeOwned>(self) -> Answer<T> {
        let (what, peer) = (self.what.clone(), Arc::clone(&self.peer));
        let fail = |why: &dyn Display| -> ! {
            let side = peer.side;
            panic!("{what} of {side:?}: {why}; its stderr:\n{}", peer.stderr())
        };
        match timeout(ANSWER, self.answer()).await {
            Ok(Ok(answer)) => match serde_json::from_value(answer.value) {
                Ok(value) => Answer {
                    began: answer.began,
                    ended: answer.ended,
                    value,
                },
                Err(error) => fail(&error),
            },
            Ok(Err(failure)) => fail(&failure),
            Err(_) => fail(&format!("no answer within {ANSWER:?}")),
        }
    }

    /// The value.
    ///
    /// # Panics
    /// As [`Pending::timed`].
    pub async fn value<T: DeserializeOwned>(self) -> T {
        self.timed().await.value
    }

    /// What an acquisition got, or `None` where it was refused.
    ///
    /// # Panics
    /// As [`Pending::timed`].
    pub async fn grant(self) -> Option<Grant> {
        self.value().await
    }

    /// An acquisition that has to be granted, with its times.
    ///
    /// # Panics
    /// As [`Pending::timed`], and if it was refused.
    pub async fn granted(self) -> Answer<Grant> {
        let what = self.what.clone();
        let Answer {
            began,
            ended,
            value,
        } = self.timed::<Option<Grant>>().await;
        Answer {
            began,
            ended,
            value: value.unwrap_or_else(|| panic!("{what} was refused")),
        }
    }
}
