//! Tasks that take locks one after the other, and check that nobody else is inside.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Client, Error};
use distlock_tests::eventually_eq;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::support::SOON;

/// How many keys the tasks share.
const KEYS: usize = 20;

/// How many tasks there are.
const TASKS: usize = 40;

/// What the tasks take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Reentrant locks: scripts with one key.
    Locks,
    /// Fair, fenced and write locks in turn: scripts with several keys.
    SeveralKeys,
    /// Three locks at a time, in random orders.
    MultiLocks,
}

/// Tasks that take locks until `stop` is set.
pub(super) struct Load {
    tasks: JoinSet<()>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    grants: AtomicU64,
    inside: [AtomicBool; KEYS],
    overlaps: AtomicU64,
    errors: Mutex<Vec<Error>>,
}

impl Load {
    /// Starts the tasks. The names of their keys begin with `prefix`.
    pub(super) fn start(clients: &[Client], prefix: &str, what: What) -> Self {
        let seen = Arc::new(Seen::default());
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let client = clients[task % clients.len()].clone();
            tasks.spawn(take_turns(
                client,
                prefix.to_owned(),
                what,
                Arc::clone(&seen),
            ));
        }
        Self { tasks, seen }
    }

    pub(super) fn grants(&self) -> u64 {
        self.seen.grants.load(Ordering::SeqCst)
    }

    /// Completes when so many more grants were seen: the tasks go on.
    pub(super) async fn goes_on(&self, grants: u64) {
        let until = self.grants() + grants;
        eventually_eq(SOON * 6, "the tasks go on", true, || async {
            self.grants() >= until
        })
        .await;
    }

    /// Stops the tasks, and asserts that nobody met an error and nobody was inside together with another.
    pub(super) async fn end(self) -> u64 {
        let seen = self.stopped().await;
        let errors = seen.errors.lock().unwrap();
        let texts: Vec<_> = errors.iter().take(3).map(ToString::to_string).collect();
        assert!(errors.is_empty(), "{} errors: {texts:?}", errors.len());
        assert_eq!(seen.overlaps.load(Ordering::SeqCst), 0, "two inside");
        seen.grants.load(Ordering::SeqCst)
    }

    /// Like [`end`](Load::end) after a server was lost, and with it what it had not told its replica. A holder may then be
    /// told of its loss, and until then another one may be inside, at most once for each key.
    pub(super) async fn end_after_a_loss(self) {
        let seen = self.stopped().await;
        let mut errors = seen.errors.lock().unwrap();
        let all = errors.len();
        errors.retain(|error| !error.is_lost());
        let texts: Vec<_> = errors.iter().take(3).map(ToString::to_string).collect();
        assert!(errors.is_empty(), "{} errors: {texts:?}", errors.len());
        let overlaps = seen.overlaps.load(Ordering::SeqCst);
        println!("{all} holders were told of a loss, {overlaps} times two were inside");
        assert!(all <= KEYS && overlaps <= KEYS as u64);
    }

    async fn stopped(mut self) -> Arc<Seen> {
        self.seen.stop.store(true, Ordering::SeqCst);
        while let Some(task) = self.tasks.join_next().await {
            task.expect("a task panicked");
        }
        self.seen
    }
}

async fn take_turns(client: Client, prefix: String, what: What, seen: Arc<Seen>) {
    while !seen.stop.load(Ordering::SeqCst) {
        let at = rand::random_range(0..KEYS);
        let taken = match what {
            What::MultiLocks => {
                let mut keys = [at, (at + 7) % KEYS, (at + 13) % KEYS];
                keys.rotate_left(rand::random_range(0..3));
                keys.to_vec()
            }
            _ => vec![at],
        };
        if let Err(error) = enter(&client, &prefix, what, &taken, &seen).await {
            seen.errors.lock().unwrap().push(error);
        }
    }
}

async fn enter(
    client: &Client,
    prefix: &str,
    what: What,
    taken: &[usize],
    seen: &Seen,
) -> Result<(), Error> {
    let name = |at: &usize| format!("{prefix}{at}");
    let key = name(&taken[0]);
    // Which primitive a key is for.
    let kind = taken[0] % 3;
    let body = inside(taken, seen);
    let wait = SOON * 6;
    match (what, kind) {
        (What::Locks, _) => client.lock(key).acquire().wait(wait).run(body).await,
        (What::MultiLocks, _) => {
            let locks = client.multi_lock(taken.iter().map(name));
            locks.acquire().wait(wait).run(body).await
        }
        (What::SeveralKeys, 0) => client.fair_lock(key).acquire().wait(wait).run(body).await,
        (What::SeveralKeys, 1) => client.fenced_lock(key).acquire().wait(wait).run(body).await,
        (What::SeveralKeys, _) => {
            let lock = client.rw_lock(key);
            lock.write().acquire().wait(wait).run(body).await
        }
    }
}

async fn inside(taken: &[usize], seen: &Seen) {
    for at in taken {
        if seen.inside[*at].swap(true, Ordering::SeqCst) {
            seen.overlaps.fetch_add(1, Ordering::SeqCst);
        }
    }
    sleep(Duration::from_millis(rand::random_range(0..3))).await;
    for at in taken {
        seen.inside[*at].store(false, Ordering::SeqCst);
    }
    seen.grants.fetch_add(1, Ordering::SeqCst);
}
