//! Nodes of a cluster that announce addresses at which nobody reaches them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use distlock::{Client, Error};
use distlock_tests::server::free_port;
use distlock_tests::server::loopback;
use distlock_tests::server::sentinel::SERVICE;
use distlock_tests::{
    ByNames, Flow, Names, Proxy, RedisCluster, Select, SentinelSet, Way, eventually, eventually_eq,
};

use crate::redis::{SOON, ms};

/// The name by which the client of these tests reaches the servers: the harness's resolver alone knows it.
const GATE: &str = "gate.test";

/// For clients that cannot connect: each of them goes on for so long.
const CONNECT: Duration = ms(1_500);

in_real_time!(
    CONNECT;
    cluster_of_which_no_node_can_be_used_is_refused_with_the_address_that_it_announces,
    error_of_one_node_that_is_silent_or_refuses_names_it_among_the_others,
    panic_of_the_map_and_an_address_that_is_none_are_errors_of_that_connection,
    map_file_is_read_again_for_each_connection_and_its_errors_name_the_line,
    master_that_sentinels_name_is_reached_by_the_map,
);

/// A cluster whose nodes all announce ports at which nobody listens, and where these are in truth.
async fn forwarded() -> (RedisCluster, HashMap<u16, u16>) {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let mut ports = HashMap::new();
    for node in 0..cluster.size() {
        let announced = announces_nowhere(&cluster, node).await;
        ports.insert(announced, cluster.node(node).port());
    }
    (cluster, ports)
}

/// Acquires a key at each node, and hands it over by a message.
async fn works_everywhere(cluster: &RedisCluster, client: &Client, other: &Client) {
    for node in 0..cluster.size() {
        let key = cluster.key_at(node, "mapped:").await;
        let guard = client.lock(&key).acquire().wait(SOON).await.expect(&key);
        let waits = tokio::spawn(other.lock(&key).acquire().wait(SOON).into_future());
        guard.release().await.expect(&key);
        waits
            .await
            .unwrap()
            .expect(&key)
            .release()
            .await
            .expect(&key);
    }
}

/// Has a node announce a port at which nobody listens, until all of these nodes name it.
async fn announces_nowhere(cluster: &RedisCluster, node: usize) -> u16 {
    let port = free_port();
    let set = ["CONFIG", "SET", "cluster-announce-port", &port.to_string()];
    cluster.node(node).cli(&set).await;
    for teller in 0..cluster.size() {
        let named = || async {
            let slots = cluster.node(teller).cli(&["CLUSTER", "SLOTS"]).await;
            let text = format!("{slots:?}");
            if text.contains(&port.to_string()) {
                Ok(())
            } else {
                Err(text)
            }
        };
        eventually(SOON, "the new port", named).await;
    }
    port
}

async fn cluster_of_which_no_node_can_be_used_is_refused_with_the_address_that_it_announces() {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let mut ports = Vec::new();
    for node in 0..cluster.size() {
        ports.push(announces_nowhere(&cluster, node).await);
    }
    let patient = Client::builder().connect_timeout(CONNECT);
    let error = patient.connect(&cluster.url()).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Unreachable { .. }), "{text}");
    assert!(text.contains("announce"), "{text}");
    let names_one = ports.iter().any(|port| text.contains(&port.to_string()));
    assert!(names_one, "{text}: {ports:?}");
}

/// The map comes from a node at another address than the one it announces, as behind a load balancer. The masters are slow: each takes
/// longer to connect to than its share of the time.
#[tokio::test]
async fn cluster_of_many_masters_that_are_slow_is_connected_to_when_the_first_of_them_is() {
    let builder = RedisCluster::builder().replicas(false).proxies(true);
    let cluster = builder.start().await;
    let seed = Proxy::start(cluster.node(0).addr()).await;
    let masters = 0..cluster.size();
    let stalls = masters.clone().map(|at| {
        let proxy = cluster.proxy(at);
        proxy.flow(Select::NEW, Way::Down, Flow::Stall)
    });
    let stalls: Vec<_> = stalls.collect();
    let before: Vec<_> = masters
        .clone()
        .map(|at| cluster.proxy(at).accepted())
        .collect();
    let asked = || {
        let is_asked = |at: &usize| cluster.proxy(*at).accepted() > before[*at];
        masters.clone().filter(is_asked).collect::<Vec<_>>()
    };
    let url = format!("redis+cluster://{}", seed.addr());
    let connecting = tokio::spawn(async move {
        let patient = Client::builder().connect_timeout(SOON / 2);
        patient.connect(&url).await
    });
    let one = async || asked().first().copied().ok_or("no master is asked");
    let first = eventually(SOON, "a master to be asked", one).await;
    let another = async || asked().len() > 1;
    eventually_eq(SOON, "another master is asked", true, another).await;
    stalls[first].lift();
    let client = connecting.await.unwrap().expect("connected");
    let key = cluster.key_at(first, "slow:").await;
    drop(client.lock(&key).try_acquire().await.unwrap().unwrap());
}

#[tokio::test]
async fn seed_that_is_slow_is_waited_for_beside_the_other_seeds() {
    let builder = RedisCluster::builder().replicas(false).proxies(true);
    let cluster = builder.start().await;
    let proxies: Vec<_> = (0..cluster.size()).map(|at| cluster.proxy(at)).collect();
    let stalls: Vec<_> = proxies
        .iter()
        .map(|proxy| proxy.flow(Select::NEW, Way::Down, Flow::Stall))
        .collect();
    let last = proxies[cluster.size() - 1];
    let before = last.accepted();
    let seeds: Vec<_> = proxies
        .iter()
        .map(|proxy| proxy.addr().to_string())
        .collect();
    let url = format!("redis+cluster://{}", seeds.join(","));
    let connecting = tokio::spawn(async move { Client::builder().connect(&url).await });
    let asked = || async { last.accepted() > before };
    eventually_eq(SOON, "the last seed is asked", true, asked).await;
    stalls[0].lift();
    let client = connecting.await.unwrap().expect("connected");
    let key = cluster.key_at(0, "slow:").await;
    drop(client.lock(&key).try_acquire().await.unwrap().unwrap());
}

#[tokio::test]
async fn error_of_a_node_that_cannot_be_reached_names_it_and_where_its_address_comes_from() {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let (lost, there) = (cluster.key_at(0, "k:").await, cluster.key_at(1, "k:").await);
    let port = announces_nowhere(&cluster, 0).await;
    let client = Client::connect(&cluster.url()).await.unwrap();
    drop(client.lock(&there).try_acquire().await.unwrap().unwrap());
    let error = client.lock(&lost).try_acquire().await.unwrap_err();
    let text = error.to_string();
    assert!(error.is_unavailable(), "{text}");
    assert!(
        text.contains(&format!(
            "127.0.0.1:{port}, an address that the nodes of the cluster announce"
        )),
        "{text}"
    );
}

async fn error_of_one_node_that_is_silent_or_refuses_names_it_among_the_others() {
    let mut cluster = RedisCluster::builder()
        .replicas(false)
        // One that stands still does not count as failed.
        .arg("--cluster-node-timeout", "60000")
        .start()
        .await;
    let mut keys = Vec::new();
    for node in 0..3 {
        keys.push(cluster.key_at(node, "k:").await);
    }
    let builder = Client::builder().response_timeout(ms(300));
    let builder = builder.unavailable_after(ms(600));
    let client = builder.connect(&cluster.url()).await.unwrap();
    for key in &keys {
        let works = || async { client.lock(key).acquire().wait(SOON).await.map(drop) };
        eventually(SOON, "each node works", works).await;
    }
    let says = async |node: usize, address: String, words: &str| {
        let text = async || {
            let tried = client.lock(&keys[node]).acquire().wait(ms(700)).await;
            let text = tried.unwrap_err().to_string();
            if text.contains(&address) && text.contains(words) {
                Ok(())
            } else {
                Err(text)
            }
        };
        eventually(SOON, "an error with the name of the node", text).await;
    };
    let address = |cluster: &RedisCluster, node| cluster.node(node).addr().to_string();
    cluster.node_mut(0).stop();
    says(0, address(&cluster, 0), "no answer within").await;
    cluster.node_mut(0).cont();
    let rights = ["ACL", "SETUSER", "default", "-evalsha", "-eval"];
    cluster.node(1).cli(&rights).await;
    says(1, address(&cluster, 1), "no permissions").await;
    let mut admin = cluster.node(2).connection().await;
    for words in [
        "ACL SETUSER default resetpass >other",
        "CLIENT KILL TYPE normal SKIPME yes",
    ] {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        command.arg(words.collect::<Vec<_>>());
        command.query_async::<()>(&mut admin).await.unwrap();
    }
    says(2, address(&cluster, 2), "an address of the URL: ").await;
}

#[tokio::test]
async fn error_of_the_master_that_sentinels_name_has_its_address() {
    let set = SentinelSet::builder().patient().start().await;
    let master = set.server(set.master().await);
    let client = Client::connect(&set.url()).await.unwrap();
    drop(client.lock("k").acquire().await.unwrap());
    let rights = ["ACL", "SETUSER", "default", "-evalsha", "-eval"];
    master.cli(&rights).await;
    let error = client.lock("k").acquire().await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Denied { .. }), "{text}");
    assert!(
        text.contains(&format!("master {}: NoPerm", master.addr())),
        "{text}"
    );
}

#[tokio::test]
async fn function_maps_announced_addresses_to_those_that_can_be_reached() {
    let (cluster, ports) = forwarded().await;
    let names = Names::new();
    names.lead(GATE, [cluster.node(0).addr()]);
    let connect = || {
        let ports = ports.clone();
        let map = move |host: &str, port: u16| {
            assert_eq!(host, "127.0.0.1");
            Some((host.to_owned(), *ports.get(&port)?))
        };
        let url = cluster.url();
        async move { Client::builder().map_address(map).connect(&url).await }
    };
    let (one, two) = (connect().await.unwrap(), connect().await.unwrap());
    works_everywhere(&cluster, &one, &two).await;
    // A name is looked up as any other.
    let (announced, reached) = ports.iter().next().map(|(a, b)| (*a, *b)).unwrap();
    names.lead(GATE, [loopback(reached)]);
    let others = ports.clone();
    let by_name = Client::builder()
        .by_names(&names)
        .map_address(move |host, port| {
            let host = if port == announced { GATE } else { host };
            Some((host.to_owned(), *others.get(&port)?))
        });
    let by_name = by_name.connect(&cluster.url()).await.unwrap();
    works_everywhere(&cluster, &by_name, &two).await;
    assert!(names.asked(GATE) > 0, "it was reached by its name");
    // What errors call the node is what it announces.
    assert!(
        one.servers().contains(&format!(":{announced}")),
        "{}",
        one.servers()
    );
}

/// The file may come from the URL. It is not even read.
#[tokio::test]
async fn function_that_maps_addresses_counts_and_the_file_does_not() {
    let (cluster, ports) = forwarded().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("addresses");
    let mut lines = String::new();
    for announced in ports.keys() {
        writeln!(lines, "127.0.0.1:{announced} 127.0.0.1:{}", free_port()).unwrap();
    }
    std::fs::write(&path, &lines).unwrap();
    let url = format!("{}?map_file={}", cluster.url(), path.display());
    let map = move |host: &str, port: u16| Some((host.to_owned(), *ports.get(&port)?));
    let builder = Client::builder().map_address(map).connect_timeout(SOON);
    let in_url = builder
        .clone()
        .connect(&url)
        .await
        .expect("the file counts");
    let in_program = builder.map_file(&path).connect(&cluster.url()).await;
    let in_program = in_program.expect("the file counts");
    works_everywhere(&cluster, &in_url, &in_program).await;
}

async fn panic_of_the_map_and_an_address_that_is_none_are_errors_of_that_connection() {
    let (cluster, ports) = forwarded().await;
    let patient = || Client::builder().connect_timeout(CONNECT);
    let panics = patient().map_address(|_, _| panic!("no map"));
    let text = panics
        .connect(&cluster.url())
        .await
        .unwrap_err()
        .to_string();
    assert!(text.contains("the function panicked: no map"), "{text}");
    let nowhere = patient().map_address(|_, _| Some((String::new(), 7)));
    let text = nowhere
        .connect(&cluster.url())
        .await
        .unwrap_err()
        .to_string();
    assert!(text.contains("`:7`, which is no address"), "{text}");
    // Mapped to a port where nobody listens, the error has both addresses.
    let port = free_port();
    let away = patient().map_address(move |host, _| Some((host.to_owned(), port)));
    let text = away.connect(&cluster.url()).await.unwrap_err().to_string();
    let names_one = ports.keys().any(|port| text.contains(&port.to_string()));
    assert!(
        names_one && text.contains(&format!("mapped to 127.0.0.1:{port}")),
        "{text}"
    );
}

async fn map_file_is_read_again_for_each_connection_and_its_errors_name_the_line() {
    let (cluster, ports) = forwarded().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("addresses");
    let mut lines = String::from("# announced reached\n");
    for (announced, reached) in &ports {
        writeln!(lines, "127.0.0.1:{announced} 127.0.0.1:{reached}").unwrap();
    }
    let url = format!(
        "{}?map_file={}&connect_timeout=1500ms",
        cluster.url(),
        path.display()
    );
    let text = Client::connect(&url).await.unwrap_err().to_string();
    assert!(
        text.contains(&format!("{}: No such file", path.display())),
        "{text}"
    );
    std::fs::write(&path, format!("{lines}127.0.0.1:1\n")).unwrap();
    let text = Client::connect(&url).await.unwrap_err().to_string();
    let line = ports.len() + 2;
    assert!(
        text.contains(&format!("line {line} of the map of addresses")),
        "{text}"
    );
    // The same client goes on once the line is mended.
    let lazy = Client::connect_lazy(&url).unwrap();
    let key = cluster.key_at(0, "mapped:").await;
    let error = lazy.lock(&key).acquire().wait(ms(300)).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    std::fs::write(&path, &lines).unwrap();
    let other = Client::builder().map_file(&path);
    let other = other.connect(&cluster.url()).await.unwrap();
    works_everywhere(&cluster, &lazy, &other).await;
}

/// The Sentinels name a host that the system finds and the client's resolver does not.
async fn master_that_sentinels_name_is_reached_by_the_map() {
    const NAMED: &str = "127.1";
    let set = SentinelSet::builder().patient().start().await;
    let master = set.server(set.master().await);
    let port = master.port();
    let mut lines = Vec::new();
    for sentinel in 0..3 {
        let sentinel = set.sentinel(sentinel);
        for words in [
            &["SENTINEL", "CONFIG", "SET", "resolve-hostnames", "yes"][..],
            &["SENTINEL", "CONFIG", "SET", "announce-hostnames", "yes"],
            &["SENTINEL", "REMOVE", SERVICE],
            &[
                "SENTINEL",
                "MONITOR",
                SERVICE,
                NAMED,
                &port.to_string(),
                "2",
            ],
        ] {
            lines.push(sentinel.cli(words).await);
        }
    }
    let names = Names::new();
    let builder = || Client::builder().by_names(&names).connect_timeout(CONNECT);
    let text = builder().connect(&set.url()).await.unwrap_err().to_string();
    assert!(
        text.contains(&format!("server {NAMED}:{port}")),
        "{text}: {lines:?}"
    );
    let mapped =
        builder().map_address(|host, port| (host == NAMED).then(|| ("127.0.0.1".to_owned(), port)));
    let client = mapped.connect(&set.url()).await.unwrap();
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    assert!(master.keys().await.contains(&"k".to_owned()));
    guard.release().await.unwrap();
}
