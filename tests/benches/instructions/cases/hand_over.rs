//! Tasks of one process take the same key, one after the other.
//!
//! No round has more hand-overs than a client does before it releases the key in the server, and so each round has one such
//! release, which drops out. A round takes a few milliseconds: where the machine interrupts it for longer, the client asks the
//! server as well, and the count of that round is higher. The lower quartile of the rounds leaves it
//! out.

use distlock::{Client, Lock};
use tokio::task::JoinSet;

use crate::bare::{Bare, Name};
use crate::parts::{Parts, Side};

const ROUNDS: usize = 41;
const TASKS: usize = 8;
const TURNS: [usize; 2] = [1, 5];

pub(super) async fn run(url: &str, parts: &mut Parts) {
    let client = Client::connect(url).await.unwrap();
    let (mut bare, name) = (Bare::connect(url).await, Name::new(0));
    let lock = client.lock("hot");
    take_turns(&lock, 1).await;
    for _ in 0..ROUNDS {
        for turns in TURNS {
            let operations = TASKS * turns;
            let ours = take_turns(&lock, turns);
            parts.count(Side::Library, operations, ours).await;
            let theirs = async {
                for _ in 0..operations {
                    bare.pair(&name).await;
                }
            };
            parts.count(Side::Bare, operations, theirs).await;
        }
    }
}

/// All tasks wait in line while the key is held, and after each turn they wait at the end of the line again.
async fn take_turns(lock: &Lock, turns: usize) {
    let first = lock.acquire().await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let lock = lock.clone();
        tasks.spawn(async move {
            for _ in 0..turns {
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
    // On one thread, each of them has begun to wait after that.
    tokio::task::yield_now().await;
    first.release().await.unwrap();
    tasks.join_all().await;
}
