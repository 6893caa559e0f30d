//! Rows 100 and 115: the name in the URL is pointed at another server, or stands for several masters.

use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock::Client;
use distlock_tests::log::lines_with;
use distlock_tests::proxy::{Flow, Way};
use distlock_tests::{
    ByNames, Names, Proxy, RedisCluster, RedisServer, Select, eventually, eventually_eq, listened,
    lock_once,
};

use crate::row::{Row, rows};
use crate::support::{SOON, default_client, ms};

/// A name that no other play of a row has. All rows share one log, and a row finds its own lines by its name.
fn own_name(begins: &str) -> String {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    format!("{begins}{}.test", NAMES.fetch_add(1, Ordering::Relaxed))
}

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
    let (names, name) = (Names::new(), own_name("turning"));
    let client = client_by(&names, &name, &[servers[0].addr()]).await;
    let turns = servers.each_ref().map(RedisServer::addr);
    turn(row, (&client, &names), &name, turns).await;
}

async fn f100_seed_whose_answers_change_again_after_a_move_is_told_of_in_one_warning(row: &Row) {
    let cluster = || RedisCluster::builder().replicas(false).start();
    let clusters = [cluster().await, cluster().await];
    let (names, seed) = (Names::new(), own_name("rotating-seed"));
    let turns = clusters.each_ref().map(|cluster| cluster.node(0).addr());
    names.lead(&seed, [turns[0]]);
    let builder = Client::builder().by_names(&names).look_up_interval(ms(50));
    let client = builder.connect(&format!("redis+cluster://{seed}")).await;
    turn(row, (&client.unwrap(), &names), &seed, turns).await;
}

/// Completes when the client has new connections in the place of these.
async fn reconnected(client: &Client, server: &RedisServer) {
    assert!(server.kill_clients("normal").await > 0);
    let again = || async {
        let acquired = client.lock("again").acquire().wait(SOON).await;
        acquired.map(drop).map_err(|error| error.to_string())
    };
    eventually(SOON, "a new connection", again).await;
}

/// A name that leads to these addresses, and a client that has connected by it.
async fn client_by(names: &Names, name: &str, to: &[SocketAddr]) -> Client {
    names.lead(name, to.iter().copied());
    let builder = Client::builder().by_names(names).look_up_interval(ms(50));
    builder.connect(&format!("redis://{name}")).await.unwrap()
}

async fn f100_connection_for_messages_that_hangs_at_the_old_address_is_made_at_the_new_one(
    row: &Row,
) {
    let name = &*own_name("hanging");
    let server = RedisServer::start().await;
    let [old, new] = [server.addr(); 2].map(Proxy::start);
    let (old, new) = (old.await, new.await);
    let names = Names::new();
    names.lead(name, [old.addr()]);
    let builder = Client::builder().by_names(&names).look_up_interval(ms(50));
    // Without the move, the connection hangs for longer than this test.
    let builder = builder.connect_timeout(10 * SOON);
    let client = builder.connect(&format!("redis://{name}")).await.unwrap();
    let holder = default_client(&server.url()).await;
    let guard = holder.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(client.lock("k").acquire().wait(10 * SOON).into_future());
    listened(&server, "k", 1).await;
    let hangs = old.flow(Select::NEW, Way::Both, Flow::Stall);
    assert!(old.cut(Select::SUBSCRIBERS) > 0);
    listened(&server, "k", 0).await;
    hangs.reach(1, SOON).await;
    names.lead(name, [new.addr()]);
    listened(&server, "k", 1).await;
    row.injected("handshake that hangs", hangs.hits());
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
}

async fn f115_name_of_two_masters_leads_programs_to_one_of_them_and_each_warns_once(row: &Row) {
    let name = &*own_name("twins");
    let servers = [RedisServer::start().await, RedisServer::start().await];
    let [first, second] = servers.each_ref().map(|server| Proxy::start(server.addr()));
    let mut proxies = [(first.await, &servers[0]), (second.await, &servers[1])];
    proxies.sort_by_key(|(proxy, _)| proxy.addr());
    let [(one, used), (other, _)] = &proxies;
    let (names, turned) = (Names::new(), Names::new());
    let client = client_by(&names, name, &[one.addr(), other.addr()]).await;
    let later = client_by(&turned, name, &[other.addr(), one.addr()]).await;
    let guard = client.lock("k").acquire().await.unwrap();
    assert!(later.lock("k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let mut words = vec![
        "WARN".to_owned(),
        format!("{name}:6379 ({})", one.addr()),
        format!("{name}:6379 ({})", other.addr()),
    ];
    for server in &servers {
        words.push(server.info("server").await["run_id"].clone());
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let warnings = || async { lines_with(&words) };
    eventually_eq(SOON, "a warning of each client", 2, warnings).await;
    // The other one is asked again by both, and nothing more is said.
    for _ in 0..3 {
        let before = other.accepted();
        reconnected(&client, used).await;
        let asked_again = || async { other.accepted() >= before + 2 };
        eventually_eq(SOON, "asked again", true, asked_again).await;
    }
    assert_eq!(lines_with(&words), 2);
    row.injected("second master of a name", 1);
}

async fn f115_replica_and_second_address_of_the_server_are_no_other_masters(row: &Row) {
    let name = &*own_name("alike");
    let [server, replica] = [RedisServer::start().await, RedisServer::start().await];
    let port = server.port().to_string();
    replica.cli(&["REPLICAOF", "127.0.0.1", &port]).await;
    let of_replica = Proxy::start(replica.addr()).await;
    let mut of_server = [
        Proxy::start(server.addr()).await,
        Proxy::start(server.addr()).await,
    ];
    of_server.sort_by_key(Proxy::addr);
    let [_used, again] = &of_server;
    let names = Names::new();
    let addresses = [&of_replica, &of_server[0], again].map(Proxy::addr);
    let client = client_by(&names, name, &addresses).await;
    lock_once(&client, "k").await;
    let asked = || async { again.accepted() > 0 && of_replica.accepted() > 0 };
    eventually_eq(SOON, "both were asked", true, asked).await;
    reconnected(&client, &server).await;
    let asked = || async { again.accepted() > 1 && of_replica.accepted() > 1 };
    eventually_eq(SOON, "both were asked again", true, asked).await;
    assert_eq!(lines_with(&["WARN", name, "is a master, too"]), 0);
    row.injected("address of the same server", again.accepted());
}

rows! {
    Real:
        f115_name_of_two_masters_leads_programs_to_one_of_them_and_each_warns_once,
        f115_replica_and_second_address_of_the_server_are_no_other_masters,
        f100_connection_for_messages_that_hangs_at_the_old_address_is_made_at_the_new_one,
        f100_answers_that_change_again_after_a_move_are_told_in_one_warning,
        f100_seed_whose_answers_change_again_after_a_move_is_told_of_in_one_warning;
}
