//! Row 100: the name in the URL is pointed at another server again and again.

use std::net::SocketAddr;

use distlock::Client;
use distlock_tests::log::lines_with;
use distlock_tests::{ByNames, Names, RedisCluster, RedisServer, eventually, lock_once};

use crate::row::{Row, rows};
use crate::support::{SOON, ms};

const NAME: &str = "turning.test";
const SEED: &str = "rotating-seed.test";

/// Turns the name to and fro, and looks for the warnings.
async fn turn(row: &Row, (client, names): (&Client, &Names), name: &str, turns: [SocketAddr; 2]) {
    let told = |part: &'static str| async move {
        let count = lines_with(&["WARN", name, part]);
        if count > 0 { Ok(()) } else { Err(part) }
    };
    names.lead(name, [turns[1]]);
    eventually(SOON, "a warning of the move", || told("leads to another")).await;
    names.lead(name, [turns[0]]);
    let rotates = || told("one server after another");
    eventually(SOON, "a warning of the rotation", rotates).await;
    // Many more answers, and no further word.
    for turn in 0..4 {
        names.lead(name, [turns[turn % 2]]);
        let asked = || async {
            let asked = names.asked(name);
            if asked >= 8 { Ok(()) } else { Err(asked) }
        };
        eventually(SOON, "look-ups", asked).await;
    }
    assert_eq!(lines_with(&["WARN", name, "leads to another"]), 1);
    assert_eq!(lines_with(&["WARN", name, "one server after another"]), 1);
    lock_once(client, "k").await;
    row.injected("answer without the server", names.asked(name));
}

async fn f100_answers_that_change_again_after_a_move_are_told_in_one_warning(row: &Row) {
    let servers = [RedisServer::start().await, RedisServer::start().await];
    let names = Names::new();
    names.lead(NAME, [servers[0].addr()]);
    let builder = Client::builder().by_names(&names).look_up_interval(ms(50));
    let client = builder.connect("redis://turning.test").await.unwrap();
    let turns = servers.each_ref().map(RedisServer::addr);
    turn(row, (&client, &names), NAME, turns).await;
}

async fn f100_seed_whose_answers_change_again_after_a_move_is_told_of_in_one_warning(row: &Row) {
    let cluster = || RedisCluster::builder().replicas(false).start();
    let clusters = [cluster().await, cluster().await];
    let names = Names::new();
    let turns = clusters.each_ref().map(|cluster| cluster.node(0).addr());
    names.lead(SEED, [turns[0]]);
    let builder = Client::builder().by_names(&names).look_up_interval(ms(50));
    let client = builder.connect("redis+cluster://rotating-seed.test").await;
    turn(row, (&client.unwrap(), &names), SEED, turns).await;
}

rows! {
    Real:
        f100_answers_that_change_again_after_a_move_are_told_in_one_warning,
        f100_seed_whose_answers_change_again_after_a_move_is_told_of_in_one_warning;
}
