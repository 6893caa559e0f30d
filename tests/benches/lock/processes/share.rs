//! How one, two and four processes share a key that is hot in all of them, with sections of a millisecond, and how four of
//! them share it with nothing inside.

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
/// The same with nothing inside. It shows how long the key is idle between two holders.
const TASKS_WITHOUT_WORK: usize = 16;
/// For the line that tells the children when to start.
const NOTICE: f64 = 20e6;
const KINDS: [Kind; 5] = [
    Kind::Lock,
    Kind::Fair,
    Kind::Write,
    Kind::Rslock,
    Kind::RedisLock,
];

/// The fair lock and the write lock are left out: the server makes each of their grants, with or without work inside.
const KINDS_WITHOUT_WORK: [Kind; 3] = [Kind::Lock, Kind::Rslock, Kind::RedisLock];

/// What a round measures.
#[derive(Clone, Copy)]
struct Load {
    tasks: usize,
    section: Duration,
    time: Duration,
}

/// How one kind was shared, round by round.
#[derive(Default)]
struct Shares {
    tasks: Vec<f64>,
    processes: Vec<f64>,
    longest: Vec<f64>,
    late: Vec<f64>,
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
        let load = Load {
            tasks: TASKS,
            section: SECTION,
            time,
        };
        let shares = all_rounds(&mut children, KINDS, load, rounds).await;
        rows(processes, shares, table);
    }
    let load = Load {
        tasks: TASKS_WITHOUT_WORK,
        section: Duration::ZERO,
        time,
    };
    let shares = all_rounds(&mut children, KINDS_WITHOUT_WORK, load, rounds).await;
    rows_without_work(children.len(), shares, table);
}

/// Each round begins with another kind.
async fn all_rounds<const N: usize>(
    children: &mut [Process],
    kinds: [Kind; N],
    load: Load,
    rounds: usize,
) -> [Shares; N] {
    let mut shares = std::array::from_fn(|_| Shares::default());
    for round in 0..rounds {
        for nth in 0..N {
            let at = (round + nth) % N;
            one_round(children, kinds[at], load, &mut shares[at]).await;
        }
    }
    shares
}

async fn one_round(children: &mut [Process], kind: Kind, load: Load, shares: &mut Shares) {
    let Load {
        tasks,
        section,
        time,
    } = load;
    let start = now() + NOTICE;
    let end = start + time.as_secs_f64() * 1e9;
    let section = section.as_micros();
    for child in children.iter_mut() {
        child.send(format!(
            "share {} {tasks} {section} {start} {end}",
            kind.word()
        ));
    }
    let (mut tasks, mut processes) = (Vec::new(), Vec::new());
    let (mut longest, mut late) = (0.0_f64, 0.0_f64);
    for child in children.iter_mut() {
        let served = child.expect("served ", WITHIN).await;
        let mut figures = served["served ".len()..].split(' ');
        let mut next = || figures.next().map(|figure| figure.parse::<f64>().unwrap());
        longest = longest.max(next().unwrap());
        late = late.max(next().unwrap());
        let of_tasks: Vec<f64> = std::iter::from_fn(next).collect();
        processes.push(of_tasks.iter().sum());
        tasks.extend(of_tasks);
    }
    let grants: f64 = tasks.iter().sum();
    shares.tasks.push(jain(&tasks));
    shares.processes.push(jain(&processes));
    shares.longest.push(longest / 1e3);
    shares.late.push(late / 1e3);
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

fn rows_without_work(processes: usize, shares: [Shares; 3], table: &mut Table) {
    let [lock, rslock, redis_lock] = &shares;
    let place = format!("hot key with nothing inside, processes: {processes}");
    type Figures = fn(&Shares) -> &Vec<f64>;
    let all: [(&str, &str, Figures); 3] = [
        ("grants", "1/s", |shares| &shares.grants),
        ("99th percentile of the waits", "ms", |shares| &shares.late),
        ("Jain index of tasks", "1 = fair", |shares| &shares.tasks),
    ];
    for (what, unit, figures) in all {
        let get = |shares: &Shares| figures(shares).clone();
        let row = Row::new(format!("{place}, {what}"), unit, "").ours(get(lock));
        table.push(row.rslock(get(rslock)).redis_lock(get(redis_lock)));
    }
}

/// In a child: its tasks enter in a loop from the one time to the other. Returns the longest wait and the 99th percentile of the
/// waits in microseconds, and how often each task was served.
pub(super) async fn hammer(
    locks: &Locks,
    kind: Kind,
    tasks: usize,
    section: Duration,
    [start, end]: [f64; 2],
) -> String {
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let locks = locks.clone();
        running.spawn(async move {
            sleep(Duration::from_nanos((start - now()).max(0.0) as u64)).await;
            let mut waits = Vec::new();
            while now() < end {
                let (asked, (tell, granted)) = (Instant::now(), tokio::sync::oneshot::channel());
                let inside = async move {
                    let _ = tell.send(asked.elapsed());
                    if !section.is_zero() {
                        sleep(section).await;
                    }
                };
                locks.enter(kind, inside).await;
                waits.push(granted.await.unwrap().as_micros());
            }
            waits
        });
    }
    let waits = running.join_all().await;
    let served: String = waits.iter().map(|one| format!(" {}", one.len())).collect();
    let mut waits = waits.concat();
    waits.sort_unstable();
    let at = |part: f64| waits.get((waits.len() as f64 * part) as usize);
    let longest = waits.last().copied().unwrap_or(0);
    let late = at(0.99).copied().unwrap_or(longest);
    format!("{longest} {late}{served}")
}
