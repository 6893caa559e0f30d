//! Rows 29, 34, 35 and 36: crowds at one key, of which some leave, and several clients of it.

use distlock::{Client, MemoryServer};
use distlock_tests::{BY_MESSAGE, Process, RedisServer, size};
use futures_util::future::join_all;
use rand::RngExt;
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use crate::foreign::{Foreign, names};
use crate::row::{Row, rows};
use crate::support::{SOON, client, free, idle, listened, ms, waiting, warm_up};

/// Two waiters of these clients, the first of which is aborted at about the moment in which it is woken.
async fn abort_at_the_wake(row: &Row, [holder, first, second]: [&Client; 3]) {
    let queued = async |client: &Client, waiters| {
        while distlock::test_util::sizes(client).waiters < waiters {
            yield_now().await;
        }
    };
    for round in 0..size(400, 3_400) {
        let guard = holder.lock("k").acquire().await.unwrap();
        let one = tokio::spawn(first.lock("k").acquire().into_future());
        queued(first, 1).await;
        let two = tokio::spawn(second.lock("k").acquire().into_future());
        queued(second, if first.id() == second.id() { 2 } else { 1 }).await;
        let yields = rand::rng().random_range(0..12);
        guard.release().await.unwrap();
        for _ in 0..yields {
            yield_now().await;
        }
        one.abort();
        // Within this time the other waiter gets in only if it is woken: the lease is 30 s, and it asks again after 4 s.
        match one.await {
            Err(gone) => row.injected("woken waiter aborted", u64::from(gone.is_cancelled())),
            Ok(guard) => drop(guard.unwrap()),
        }
        let told = timeout(BY_MESSAGE, two).await;
        let guard = told.unwrap_or_else(|_| panic!("a lost wake-up in round {round}"));
        guard.unwrap().unwrap().release().await.unwrap();
    }
}

async fn f29_waiter_aborted_when_it_is_woken_leaves_the_wake_up_to_the_next(row: &Row) {
    let server = MemoryServer::new();
    let build = || Client::builder().in_memory(&server).unwrap();
    let (one, two, three) = (build(), build(), build());
    // In one queue behind a guard of the same client, and of another one; and each in another queue.
    abort_at_the_wake(row, [&one, &one, &one]).await;
    abort_at_the_wake(row, [&two, &one, &one]).await;
    abort_at_the_wake(row, [&three, &one, &two]).await;
    for client in [&one, &two, &three] {
        idle(client).await;
    }
}

async fn f34_thousands_of_waiters_cost_three_commands_each_at_most(row: &Row) {
    let each_client = size(1_500, 5_000);
    let server = RedisServer::start().await;
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let mut foreign = Foreign::on(&server).await;
    foreign.hold(&names("k", 1)).await;
    for client in [&one, &two] {
        warm_up(client).await;
    }
    let before = commands(&server).await;
    let mut waits = JoinSet::new();
    for client in [&one, &two] {
        for _ in 0..each_client {
            waits.spawn(client.lock("k:0").acquire().run(yield_now()));
        }
        waiting(client, each_client).await;
        row.injected("waiter in a crowd", each_client as u64);
    }
    listened(&server, "k:0", 2).await;
    let crowded = commands(&server).await - before;
    assert!(crowded < 40, "{crowded} commands before any release");
    foreign.free(&names("k", 1)).await;
    while let Some(done) = waits.join_next().await {
        done.unwrap().unwrap();
    }
    let each = (commands(&server).await - before) as f64 / (2 * each_client) as f64;
    println!("{each:.2} commands for each grant");
    assert!(each <= 3.0, "{each}");
    free(&server, &[&one, &two]).await;
}

/// What clients have sent, commands within scripts not counted.
async fn commands(server: &RedisServer) -> u64 {
    let sent = ["evalsha", "eval", "subscribe", "unsubscribe"].map(|it| server.command_calls(it));
    join_all(sent).await.iter().sum()
}

async fn f35_waiters_that_time_out_leave_the_queue_and_block_nobody(row: &Row) {
    let server = RedisServer::start().await;
    let client = client(&server.url()).await;
    let (key, mut foreign) = (names("k", 1), Foreign::on(&server).await);
    foreign.hold(&key).await;
    let mut waits = Vec::new();
    let waiters = size(1_500, 5_000);
    for n in 0..waiters {
        let wait = ms(rand::rng().random_range(1..50));
        let acquire = client.lock("k:0").acquire();
        let acquire = if n == waiters / 2 {
            acquire
        } else {
            acquire.wait(wait)
        };
        waits.push(tokio::spawn(acquire.into_future()));
    }
    let patient = waits.remove(waiters / 2);
    for waits in waits {
        let error = timeout(SOON, waits).await.expect("an end").unwrap();
        row.injected("waiter timed out", u64::from(error.unwrap_err().is_busy()));
    }
    waiting(&client, 1).await;
    listened(&server, "k:0", 1).await;
    foreign.free(&key).await;
    // The waiters before it have gone, so it is the next one.
    let told = row.timeout(ms(4_000), patient).await.expect("woken");
    told.unwrap().unwrap().release().await.unwrap();
    free(&server, &[&client]).await;
}

/// Grants of two processes that hammer one key with this many tasks each.
async fn grants_of_two_processes(tasks: usize) -> [u64; 2] {
    let server = RedisServer::start().await;
    let start = || Process::start(env!("CARGO_BIN_EXE_holder"), [server.url(), "30000".into()]);
    let mut processes = [start(), start()];
    for process in &mut processes {
        process.send("acquire warm:up");
        process.line(SOON).await;
        process.send("release");
        process.line(SOON).await;
    }
    for process in &mut processes {
        process.send(format!("hammer k {} {tasks}", size(400, 3_000)));
    }
    let mut grants = [0; 2];
    for (grants, process) in grants.iter_mut().zip(&mut processes) {
        let done = process.line(2 * SOON).await;
        *grants = done.strip_prefix("done ").unwrap().parse().unwrap();
    }
    grants
}

async fn f36_processes_that_hammer_one_key_share_it(row: &Row) {
    for tasks in [1, 8] {
        let grants = grants_of_two_processes(tasks).await;
        let (few, all) = (grants[0].min(grants[1]), grants[0] + grants[1]);
        println!("{tasks} tasks each: {grants:?} grants");
        row.injected("grant contended by two processes", all);
        // On a busy machine, one of them may begin late.
        assert!(few * 10 >= all, "of {all} grants one process had {few}");
    }
}

rows! {
    Threads: f29_waiter_aborted_when_it_is_woken_leaves_the_wake_up_to_the_next;
    Real: f34_thousands_of_waiters_cost_three_commands_each_at_most,
        f35_waiters_that_time_out_leave_the_queue_and_block_nobody,
        f36_processes_that_hammer_one_key_share_it;
}
