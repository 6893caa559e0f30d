//! The name in the URL: it is pointed at another server, has several addresses, or is not found.

use std::io::Write as _;
use std::time::Duration;

use distlock::{Builder, Client, Error, Health};
use distlock_tests::server::free_port;
use distlock_tests::server::loopback;
use distlock_tests::{ByNames, Names, RedisServer, eventually, eventually_eq, lock_once};
use tokio::time::{Instant, timeout};

use crate::redis::{SOON, ms};

const URL: &str = "redis://locks.test";
const NAME: &str = "locks.test";

/// How often the clients of these tests look the name up.
const LOOK: Duration = ms(50);

/// A third of it is far more than [`SOON`], so no renewal finds a loss within a test.
const LEASE: Duration = ms(300_000);

/// A client that finds its server by the harness's resolver. Only its look for its holds finds that they are lost.
fn builder(names: &Names) -> Builder {
    let builder = Client::builder().watchdog_timeout(LEASE).track_holds(false);
    builder.by_names(names).look_up_interval(LOOK)
}

async fn connect(names: &Names) -> Client {
    builder(names).connect(URL).await.expect("a client")
}

/// Completes when the name was looked up so often since it was set.
async fn asked(names: &Names, times: u64) {
    let asked = || async {
        let asked = names.asked(NAME);
        if asked >= times { Ok(()) } else { Err(asked) }
    };
    eventually(SOON, "look-ups", asked).await;
}

/// How many connections of clients of this crate the server has.
async fn connections(server: &RedisServer) -> usize {
    let mut connection = server.connection().await;
    let list: String = redis::cmd("CLIENT")
        .arg("LIST")
        .query_async(&mut connection)
        .await
        .unwrap();
    // The name of a client ends with its id.
    let is_ours = |line: &&str| {
        line.split(' ')
            .any(|word| word.starts_with("name=") && word.contains(':'))
    };
    list.lines().filter(is_ours).count()
}

/// Completes when one server is the replica of the other.
async fn replicate(replica: &RedisServer, master: &RedisServer) {
    let port = master.port().to_string();
    replica.cli(&["REPLICAOF", "127.0.0.1", &port]).await;
    let link = || async { replica.info("replication").await["master_link_status"].clone() };
    eventually_eq(SOON, "the link", "up".to_owned(), link).await;
}

#[tokio::test]
async fn name_that_is_pointed_at_another_server_takes_clients_there_and_their_holds_are_lost() {
    let (old, new) = (RedisServer::start().await, RedisServer::start().await);
    let names = Names::new();
    names.lead(NAME, [old.addr()]);
    let client = connect(&names).await;
    let waits = client.lock("other").acquire().wait(SOON);
    drop(waits.await.unwrap());
    let guard = client.lock("k").acquire().await.unwrap();
    names.lead(NAME, [new.addr()]);
    // A client that was started later finds the new server.
    let later = connect(&names).await;
    let other = later.lock("k").try_acquire().await.unwrap();
    assert!(other.is_some(), "the key is free there");
    // The client looks for its holds at the new server: the next renewal comes far later.
    timeout(SOON, guard.lost()).await.expect("told as lost");
    assert!(guard.release().await.is_err());
    assert!(client.lock("k").try_acquire().await.unwrap().is_none());
    other.unwrap().release().await.unwrap();
    lock_once(&client, "k").await;
    eventually_eq(SOON, "connections to the old one", 0, || connections(&old)).await;
    assert_eq!(client.health(), Health::Connected);
}

#[tokio::test]
async fn waiter_goes_on_at_the_server_that_the_name_leads_to() {
    let (old, new) = (RedisServer::start().await, RedisServer::start().await);
    let names = Names::new();
    names.lead(NAME, [old.addr()]);
    let (client, holder) = (connect(&names).await, connect(&names).await);
    let _guard = holder.lock("k").acquire().await.unwrap();
    let waits = tokio::spawn(client.lock("k").acquire().wait(2 * SOON).into_future());
    crate::redis::listened(&old, "k", 1).await;
    names.lead(NAME, [new.addr()]);
    let guard = waits.await.unwrap().expect("free at the new one");
    eventually_eq(SOON, "keys of the new one", vec!["k".to_owned()], || {
        new.keys()
    })
    .await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn answers_that_rotate_move_the_client_once() {
    let servers = [RedisServer::start().await, RedisServer::start().await];
    let names = Names::new();
    names.lead(NAME, [servers[0].addr()]);
    let client = connect(&names).await;
    lock_once(&client, "k").await;
    // Without the address of the first one, for a while.
    names.lead(NAME, [servers[1].addr()]);
    eventually_eq(SOON, "connections to the old one", 0, || {
        connections(&servers[0])
    })
    .await;
    lock_once(&client, "k").await;
    let guard = client.lock("held").acquire().await.unwrap();
    names.lead(NAME, [servers[0].addr()]);
    asked(&names, 20).await;
    assert!(timeout(ms(1), guard.lost()).await.is_err());
    assert_eq!(connections(&servers[0]).await, 0);
    // Never three answers in a row without the server.
    names.rotate(NAME, servers.each_ref().map(RedisServer::addr));
    asked(&names, 20).await;
    assert_eq!(connections(&servers[0]).await, 0);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn look_ups_that_fail_find_nothing_or_hang_change_nothing() {
    let mut server = RedisServer::builder().appendonly(true).start().await;
    let names = Names::new();
    names.lead(NAME, [server.addr()]);
    let client = connect(&names).await;
    let guard = client.lock("k").acquire().await.unwrap();
    names.lead(NAME, []);
    asked(&names, 8).await;
    names.forget(NAME);
    asked(&names, 8).await;
    assert_eq!(client.health(), Health::Connected);
    names.hang(NAME);
    asked(&names, 1).await;
    // The last good address is used for the next connection, too.
    server.kill();
    server.restart().await;
    lock_once(&client, "other").await;
    // One look-up at a time, which is still under way.
    assert_eq!(names.asked(NAME), 1);
    guard.release().await.unwrap();
    // A client that knows no address says what it waits for.
    let builder = builder(&names).connect_timeout(ms(300));
    let error = builder.connect(URL).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("look-up of the name in `locks.test:6379`"),
        "{error}"
    );
    names.forget(NAME);
    let error = Client::builder()
        .by_names(&names)
        .connect_timeout(ms(300))
        .connect(URL)
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`locks.test` was not found: Name or"),
        "{error}"
    );
}

#[tokio::test]
async fn client_stays_until_the_new_server_is_there() {
    let (old, mut new) = (RedisServer::start().await, RedisServer::start().await);
    let names = Names::new();
    names.lead(NAME, [old.addr()]);
    let client = connect(&names).await;
    let guard = client.lock("k").acquire().await.unwrap();
    new.kill();
    names.lead(NAME, [new.addr()]);
    asked(&names, 10).await;
    assert_eq!(client.health(), Health::Connected);
    assert!(timeout(ms(1), guard.lost()).await.is_err());
    lock_once(&client, "other").await;
    new.restart().await;
    timeout(SOON, guard.lost()).await.expect("told as lost");
    lock_once(&client, "k").await;
}

#[tokio::test]
async fn client_stays_while_the_new_server_is_a_replica() {
    let (old, new) = (RedisServer::start().await, RedisServer::start().await);
    replicate(&new, &old).await;
    let names = Names::new();
    names.lead(NAME, [old.addr()]);
    let client = connect(&names).await;
    let guard = client.lock("k").acquire().await.unwrap();
    names.lead(NAME, [new.addr()]);
    asked(&names, 10).await;
    assert!(timeout(ms(1), guard.lost()).await.is_err());
    // It is promoted, with the hold.
    eventually_eq(SOON, "replicated", vec!["k".to_owned()], || new.keys()).await;
    new.cli(&["REPLICAOF", "NO", "ONE"]).await;
    eventually_eq(SOON, "connections to the old one", 0, || connections(&old)).await;
    lock_once(&client, "other").await;
    assert!(
        timeout(ms(1), guard.lost()).await.is_err(),
        "the new one has it"
    );
    guard.release().await.unwrap();
}

#[tokio::test]
async fn zero_never_looks_a_name_up_again() {
    let (old, new) = (RedisServer::start().await, RedisServer::start().await);
    let names = Names::new();
    names.lead(NAME, [old.addr()]);
    let builder = builder(&names).look_up_interval(Duration::ZERO);
    let client = builder.connect(URL).await.unwrap();
    names.lead(NAME, [new.addr()]);
    // Another client with the same resolver has moved long since.
    let other = connect(&names).await;
    asked(&names, 10).await;
    drop(other);
    eventually_eq(SOON, "connections of the other", 0, || connections(&new)).await;
    lock_once(&client, "k").await;
    assert_eq!(connections(&new).await, 0);
    assert!(connections(&old).await > 0);
}

#[tokio::test]
async fn name_whose_first_address_is_a_replica_leads_to_the_master() {
    let (master, replica) = (RedisServer::start().await, RedisServer::start().await);
    replicate(&replica, &master).await;
    let names = Names::new();
    names.lead(NAME, [replica.addr(), loopback(free_port()), master.addr()]);
    let client = connect(&names).await;
    lock_once(&client, "k").await;
    // Its connection for messages leads to the same server.
    let guard = client.lock("k").acquire().await.unwrap();
    let other = connect(&names).await;
    let waits = tokio::spawn(other.lock("k").acquire().wait(SOON).into_future());
    crate::redis::listened(&master, "k", 1).await;
    guard.release().await.unwrap();
    waits.await.unwrap().unwrap().release().await.unwrap();
    // It was only asked whether it is a master.
    eventually_eq(SOON, "connections to the replica", 0, || {
        connections(&replica)
    })
    .await;
}

#[tokio::test]
async fn replica_alone_is_told_with_what_to_write() {
    let (master, replica) = (RedisServer::start().await, RedisServer::start().await);
    replicate(&replica, &master).await;
    let (address, url) = (replica.addr().to_string(), replica.url());
    // Each is asked again: on a busy machine, the time may be over before the server has said what it is.
    eventually(3 * SOON, "what to write instead of a replica", || async {
        let builder = Client::builder().connect_timeout(ms(2_000));
        let error = builder.connect(&url).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Unreachable { .. }), "{text}");
        ["is a replica", &address, "redis+sentinel://"]
            .iter()
            .all(|part| text.contains(part))
    })
    .await;
    let lazy = Client::connect_lazy(&url).unwrap();
    eventually(
        3 * SOON,
        "a refused wait that names the replica",
        || async {
            let error = lazy.lock("k").acquire().wait(ms(2_000)).await.unwrap_err();
            assert!(error.is_unavailable(), "{error}");
            error.to_string().contains("is a replica")
        },
    )
    .await;
    replica.cli(&["REPLICAOF", "NO", "ONE"]).await;
    lock_once(&lazy, "k").await;
}

/// A runtime whose only thread for blocking calls does something else.
#[test]
fn localhost_is_reached_without_a_thread_of_the_pool() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let server = RedisServer::start().await;
        let (free, wait) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || wait.recv());
        let url = server.url().replace("127.0.0.1", "localhost");
        let client = Client::connect(&url).await.expect("no thread is needed");
        lock_once(&client, "k").await;
        // Another name needs one, and the text says so.
        let started = Instant::now();
        let error = Client::builder()
            .connect_timeout(ms(300))
            .connect("redis://locks.invalid")
            .await
            .unwrap_err();
        assert!(error.to_string().contains("blocking pool"), "{error}");
        assert!(started.elapsed() < SOON);
        free.send(()).unwrap();
        busy.await.unwrap().unwrap();
    });
}

#[tokio::test]
async fn server_is_reached_at_an_ipv6_address_that_the_url_has_or_a_name_leads_to() {
    let server = RedisServer::start().await;
    let bind = ["CONFIG", "SET", "bind", "127.0.0.1 ::1"];
    if server.try_cli::<()>(&bind).await.is_err() {
        // Not by a macro, whose text a test that passes does not show.
        writeln!(std::io::stderr(), "not played: this machine has no IPv6").unwrap();
        return;
    }
    let v6 = std::net::SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, server.port()));
    let url = format!("redis://{v6}");
    assert!(url.starts_with("redis://[::1]:"), "{url}");
    let names = Names::new();
    let literal = builder(&names).connect(&url).await.unwrap();
    lock_once(&literal, "k").await;
    assert_eq!(literal.servers(), v6.to_string());
    names.lead(NAME, [v6]);
    let named = connect(&names).await;
    lock_once(&named, "k").await;
    asked(&names, 5).await;
    // It was not looked up: no name is `::1`.
    assert_eq!(names.asked("::1"), 0);
    // The name is pointed at the other address of the same server.
    let guard = named.lock("k").acquire().await.unwrap();
    names.lead(NAME, [server.addr()]);
    let of_v6 = || async {
        let clients = server.client_list().await;
        let named = clients
            .iter()
            .filter(|line| line.field("name").contains(':'));
        named
            .filter(|line| line.field("addr").starts_with("[::1]"))
            .count()
    };
    drop(literal);
    eventually_eq(SOON, "connections by IPv6", 0, of_v6).await;
    assert!(
        timeout(ms(1), guard.lost()).await.is_err(),
        "the server has it"
    );
    guard.release().await.unwrap();
}
