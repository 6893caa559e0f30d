//! How one, two and four processes share a key that is hot in all of them, with sections of a millisecond.

use std::time::{Duration, Instant};

use distlock_bench::{Row, Table};
use distlock_tests::{Process, RedisServer};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::clock::now;
use super::kind::{Kind, Locks};
use super::{WITHIN, start_child};
use crate::plan::Plan;
use crate::tasks::jain;

/// Tasks of each process.
const TASKS: usize = 8;
const SECTION: Duration = Duration::from_millis(1);
/// For the line that tells the children when to start.
const NOTICE: f64 = 20e6;

const KINDS: [Kind; 5] = [
    Kind::Lock,
    Kind::Fair,
    Kind::Write,
    Kind::Rslock,
    Kind::RedisLock,
];

/// How one kind was shared, round by round.
#[derive(Default)]
struct Shares {
    tasks: Vec<f64>,
    processes: Vec<f64>,
    longest: Vec<f64>,
    grants: Vec<f64>,
}

pub(crate) async fn hot_key(server: &RedisServer, plan: Plan, table: &mut Table) {
    let (time, rounds) = plan.share;
    let mut children = Vec::new();
    for processes in [1, 2, 4] {
        while children.len() < processes {
            let mut child = start_child(server);
            child.expect("ready", WITHIN).await;
            children.push(child);
        }
        let mut shares: [Shares; 5] = Default::default();
        for round in 0..rounds {
            for nth in 0..KINDS.len() {
                let at = (round + nth) % KINDS.len();
                one_round(&mut children, KINDS[at], time, &mut shares[at]).await;
            }
        }
        rows(processes, shares, table);
    }
}

async fn one_round(children: &mut [Process], kind: Kind, time: Duration, shares: &mut Shares) {
    let start = now() + NOTICE;
    let end = start + time.as_secs_f64() * 1e9;
    for child in children.iter_mut() {
        child.send(format!("share {} {start} {end}", kind.word()));
    }
    let (mut tasks, mut processes, mut longest) = (Vec::new(), Vec::new(), 0.0_f64);
    for child in children.iter_mut() {
        let served = child.expect("served ", WITHIN).await;
        let mut figures = served["served ".len()..].split(' ');
        let mut next = || figures.next().map(|figure| figure.parse::<f64>().unwrap());
        longest = longest.max(next().unwrap());
        let of_tasks: Vec<f64> = std::iter::from_fn(next).collect();
        processes.push(of_tasks.iter().sum());
        tasks.extend(of_tasks);
    }
    let grants: f64 = tasks.iter().sum();
    shares.tasks.push(jain(&tasks));
    shares.processes.push(jain(&processes));
    shares.longest.push(longest / 1e3);
    shares.grants.push(grants / time.as_secs_f64());
}

/// The plain lock has a row with the other crates. The fair lock and the write lock are compared with the plain lock.
fn rows(processes: usize, shares: [Shares; 5], table: &mut Table) {
    let [lock, fair, write, rslock, redis_lock] = shares;
    let place = format!("hot key, processes: {processes}");
    type Figures = fn(&Shares) -> &Vec<f64>;
    let all: [(&str, &str, Figures); 4] = [
        ("Jain index of tasks", "1 = fair", |shares| &shares.tasks),
        ("Jain index of processes", "1 = fair", |shares| {
            &shares.processes
        }),
        ("worst wait", "ms", |shares| &shares.longest),
        ("grants", "1/s", |shares| &shares.grants),
    ];
    for (what, unit, figures) in all {
        if processes == 1 && what.ends_with("processes") {
            continue;
        }
        let get = |shares: &Shares| figures(shares).clone();
        let row = Row::new(format!("{place}, {what}"), unit, "").ours(get(&lock));
        table.push(row.rslock(get(&rslock)).redis_lock(get(&redis_lock)));
        for (name, shares) in [("fair lock", &fair), ("write lock", &write)] {
            let row = Row::new(format!("{place}, {name}, {what}"), unit, "the plain lock");
            table.push(row.ours(get(shares)).theirs(get(&lock)));
        }
    }
}

/// In a child: its tasks enter in a loop from the one time to the other. Returns the longest wait in microseconds, and
/// how often each task was served.
pub(super) async fn hammer(locks: &Locks, kind: Kind, [start, end]: [f64; 2]) -> String {
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let locks = locks.clone();
        tasks.spawn(async move {
            sleep(Duration::from_nanos((start - now()).max(0.0) as u64)).await;
            let (mut longest, mut served) = (0, 0);
            while now() < end {
                let (asked, (tell, granted)) = (Instant::now(), tokio::sync::oneshot::channel());
                let section = async move {
                    let _ = tell.send(asked.elapsed());
                    sleep(SECTION).await;
                };
                locks.enter(kind, section).await;
                longest = longest.max(granted.await.unwrap().as_micros());
                served += 1;
            }
            (longest, served)
        });
    }
    let served = tasks.join_all().await;
    let longest = served.iter().map(|(longest, _)| *longest).max();
    let served: String = served
        .iter()
        .map(|(_, n): &(_, u64)| format!(" {n}"))
        .collect();
    format!("{}{served}", longest.unwrap_or(0))
}
