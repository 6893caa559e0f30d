//! How long it takes from a release in one process to the grant in another one.
//!
//! # The floor
//! The other process sleeps on its socket until the message of the release arrives, and then sends one EVALSHA. It has a
//! connection for messages and another one for commands, as the library has. Before each release both processes have been
//! idle for the same time, whichever side is measured.

use std::time::Duration;

use distlock_bench::{Row, Table};
use distlock_tests::{Process, RedisServer};
use futures_util::{Stream, StreamExt};
use redis::{Msg, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::clock::now;
use super::kind::{Kind, Locks};
use super::{WITHIN, start_child};
use crate::bare::names;
use crate::plan::Plan;
use crate::report;

/// From the last word of the child to the release. By then the child has asked once more and sleeps, and the times at
/// which the other crates ask again are spread evenly.
const IDLE: Duration = Duration::from_millis(20);
const SPREAD: Duration = Duration::from_millis(1);

pub(crate) async fn two_processes(server: &RedisServer, plan: Plan, table: &mut Table) {
    let locks = Locks::new(&server.url()).await;
    let mut child = start_child(server);
    child.expect("ready", WITHIN).await;
    let kinds = [Kind::Lock, Kind::Bare, Kind::Rslock, Kind::RedisLock];
    let plan = Plan {
        rounds: plan.hand_overs,
        ..plan
    };
    let mut round = 0;
    let child = tokio::sync::Mutex::new(child);
    let figures = plan.alternate(&kinds, async |kind: &Kind| {
        round += 1;
        let idle = IDLE + SPREAD * (round % 10);
        one(&locks, *kind, &mut *child.lock().await, idle).await / 1e3
    });
    let row = Row::new(
        "release to grant in another process",
        "us",
        "a message, then EVALSHA",
    );
    table.push(report(row, figures.await));
}

/// Nanoseconds from the start of the release to the grant.
async fn one(locks: &Locks, kind: Kind, child: &mut Process, idle: Duration) -> f64 {
    let (held, holding) = oneshot::channel();
    let (release, mut released) = mpsc::channel::<()>(1);
    let (told, start) = oneshot::channel();
    let holder = {
        let locks = locks.clone();
        tokio::spawn(async move {
            let inside = async move {
                let _ = held.send(());
                released.recv().await;
                let _ = told.send(now());
            };
            locks.enter(kind, inside).await;
        })
    };
    holding.await.unwrap();
    let line = format!("take {}", kind.word());
    child.ask(line, "waiting", WITHIN).await;
    sleep(idle).await;
    release.send(()).await.unwrap();
    let granted = child.expect("granted ", WITHIN).await;
    holder.await.unwrap();
    // A child that is ended before it has released would leave the key to its lease.
    child.expect("released", WITHIN).await;
    let granted: f64 = granted["granted ".len()..].parse().unwrap();
    granted - start.await.unwrap()
}

/// In the child: takes the key that the other process frees, says when, and frees it.
pub(super) async fn take(
    locks: &Locks,
    kind: Kind,
    messages: &mut (impl Stream<Item = Msg> + Unpin),
) {
    if kind != Kind::Bare {
        let granted = async { println!("granted {}", now()) };
        return locks.enter(kind, granted).await;
    }
    let (mut bare, (key, _, channel)) = (locks.bare(), names(7));
    let owner = "1ddad9e6-60bc-45a5-8797-1987353a9077:1";
    messages.next().await.unwrap();
    assert_eq!(bare.acquire(&key, owner).await, Value::Nil);
    println!("granted {}", now());
    bare.release(&key, owner, &channel).await;
    // The message of this release, which was sent to this process as well.
    messages.next().await.unwrap();
}
