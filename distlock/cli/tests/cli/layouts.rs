//! Every command on a cluster, behind Sentinels, and over TLS.

use distlock_tests::server::free_port;
use distlock_tests::server::sentinel::SentinelSet;
use distlock_tests::{Authority, RedisCluster, eventually};
use serde_json::Value;

use super::*;

/// Runs the program to its end.
async fn ends(options: &[&str], args: &[&str], status: i32) -> Output {
    let output = plain_output(options.iter().chain(args).copied()).await;
    let (said, logged) = (stdout(&output), stderr(&output));
    assert_eq!(
        output.status.code(),
        Some(status),
        "{args:?}: {said}{logged}"
    );
    output
}

async fn json(options: &[&str], args: &[&str], status: i32) -> Value {
    let args = [args, &["--json"]].concat();
    serde_json::from_str(&stdout(&ends(options, &args, status).await)).unwrap()
}

/// What `doctor` says if nothing is bad.
async fn healthy_report(options: &[&str]) -> Value {
    let output = doctor_output(&[options, &["doctor", "--json"]].concat()).await;
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{said}{}", stderr(&output));
    serde_json::from_str(&said).unwrap()
}

/// Holds each of the keys by a process of its own, sees all of them by each command, and frees the first one by force.
async fn every_command_works(options: &[&str], keys: &[String]) {
    let hold = |key: &String| {
        let run = [
            "run",
            key,
            "--lease",
            "9s",
            "--",
            "sh",
            "-c",
            "echo running; read line",
        ];
        Process::start(PROGRAM, options.iter().copied().chain(run))
    };
    let mut runs: Vec<_> = keys.iter().map(hold).collect();
    for run in &mut runs {
        run.expect("running", SOON).await;
    }
    let listed = json(options, &["ls", "job:*"], 0).await;
    let listed: Vec<_> = listed["locks"].as_array().unwrap().iter().collect();
    let mut wanted = keys.to_vec();
    wanted.sort();
    let names: Vec<_> = listed
        .iter()
        .map(|lock| lock["key"].as_str().unwrap())
        .collect();
    assert_eq!(names, wanted);
    let watched = stdout(&ends(options, &["watch", "job:*"], 0).await);
    assert_eq!(watched.lines().count(), keys.len() + 1, "{watched}");
    for (key, run) in keys.iter().zip(&runs) {
        let held = json(options, &["who", key], 0).await;
        let name = held["holders"][0]["client"]["name"].as_str().unwrap();
        assert!(name.contains(&run.pid().to_string()), "{held:#}");
        ends(options, &["run", key, "--wait", "0", "--", "true"], 75).await;
    }
    let released = json(options, &["release", &keys[0], "--yes"], 0).await;
    assert_eq!(released["released"], true);
    assert_eq!(runs[0].wait(SOON).await.code(), Some(79));
    ends(options, &["who", &keys[0]], 1).await;
    for run in &mut runs[1..] {
        run.send("end");
        assert_eq!(run.wait(SOON).await.code(), Some(0));
    }
    assert_eq!(
        json(options, &["ls"], 0).await["locks"],
        Value::Array(Vec::new())
    );
}

/// The lines of `doctor` of one check: verdict and value.
fn lines(report: &Value, check: &str) -> Vec<(String, String)> {
    let checks = report["checks"].as_array().unwrap().iter();
    let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
    let checks = checks.filter(|one| one["check"] == check);
    checks
        .map(|one| (text(one, "verdict"), text(one, "value")))
        .collect()
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn every_command_works_on_a_cluster_and_doctor_tells_its_layout() {
    let mut cluster = RedisCluster::start().await;
    let mut keys = Vec::new();
    for node in 0..3 {
        keys.push(cluster.key_at(node, "job:").await);
    }
    let url = cluster.url();
    let options = ["--url", url.as_str()];
    every_command_works(&options, &keys).await;

    let healthy = healthy_report(&options).await;
    let layout = (
        "ok".to_owned(),
        "3 masters among 6 nodes, all slots are served".to_owned(),
    );
    assert_eq!(lines(&healthy, "cluster"), vec![layout; 3], "{healthy:#}");
    let replicas = ("ok".to_owned(), "1 replica".to_owned());
    assert_eq!(
        lines(&healthy, "replicas"),
        vec![replicas; 3],
        "{healthy:#}"
    );
    assert_eq!(lines(&healthy, "rights").len(), 3, "{healthy:#}");
    // Each node was tried with a key of its own.
    let tried = ["messages", "undeclared"].map(|check| lines(&healthy, check));
    let is_ok =
        |lines: &Vec<(String, String)>| lines.len() == 3 && lines.iter().all(|line| line.0 == "ok");
    assert!(tried.iter().all(is_ok), "{healthy:#}");

    cluster.cut_replicas(0).await;
    let alone = healthy_report(&options).await;
    let none = lines(&alone, "replicas");
    let none = none
        .iter()
        .filter(|line| line.0 == "warn" && line.1 == "none");
    assert_eq!(none.count(), 1, "{alone:#}");
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn locks_of_the_other_nodes_are_listed_while_one_is_away() {
    let builder = RedisCluster::builder().replicas(false);
    // Otherwise the others serve nothing either.
    let builder = builder.arg("--cluster-require-full-coverage", "no");
    let mut cluster = builder.start().await;
    let url = cluster.url();
    let options = ["--url", url.as_str()];
    // Nodes are asked in the order of their addresses.
    let first = (0..3)
        .min_by_key(|node| cluster.node(*node).port())
        .unwrap();
    let mut keys = Vec::new();
    for node in (0..3).filter(|node| *node != first) {
        let key = cluster.key_at(node, "job:").await;
        let run = ["run", &key, "--hold-at-least", "1h", "--", "true"];
        ends(&options, &run, 0).await;
        keys.push(key);
    }
    let away = cluster.node(first).addr().to_string();
    cluster.node_mut(first).kill();
    let listed = ends(&options, &["ls"], 69).await;
    for key in &keys {
        assert!(stdout(&listed).contains(key), "{}", stdout(&listed));
    }
    assert!(stderr(&listed).contains(&away), "{}", stderr(&listed));
    // A document is there as a whole or not at all.
    let document = ends(&options, &["ls", "--json"], 69).await;
    assert_eq!(stdout(&document), "");
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn map_file_leads_to_nodes_that_announce_addresses_which_cannot_be_reached() {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let map = cluster.node(0).dir().join("addresses");
    let mut text = String::new();
    for node in 0..cluster.size() {
        let announced = free_port().to_string();
        let set = ["CONFIG", "SET", "cluster-announce-port", &announced];
        cluster.node(node).cli(&set).await;
        let named = || async {
            let slots = format!("{:?}", cluster.node(0).cli(&["CLUSTER", "SLOTS"]).await);
            if slots.contains(&announced) {
                Ok(())
            } else {
                Err(slots)
            }
        };
        eventually(SOON, "the new port", named).await;
        text += &format!("127.0.0.1:{announced} {}\n", cluster.node(node).addr());
    }
    std::fs::write(&map, text).unwrap();
    let key = cluster.key_at(1, "job:").await;
    let (url, map) = (cluster.url(), map.display().to_string());
    let short = ["--url", &url, "--connect-timeout", "1s"];
    ends(&short, &["run", &key, "--", "true"], 69).await;
    ends(
        &["--url", &url, "--map-file", &map],
        &["run", &key, "--", "true"],
        0,
    )
    .await;
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn doctor_tells_of_slots_that_no_node_serves() {
    let builder = RedisCluster::builder().replicas(false);
    // So that the others soon notice.
    let builder = builder.arg("--cluster-node-timeout", "2500");
    let mut cluster = builder.start().await;
    let url = cluster.url();
    cluster.node_mut(2).kill();
    let options = ["--url", url.as_str()];
    eventually(SOON * 2, "the others notice", || async {
        let output = plain_output(["--url", &url, "doctor", "--json"]).await;
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let bad = lines(&report, "cluster")
            .into_iter()
            .any(|(verdict, value)| verdict == "bad" && value.starts_with("state fail"));
        (bad && output.status.code() == Some(1))
            .then_some(())
            .ok_or(report)
    })
    .await;
    // Of the node that is away, this line alone: nothing is said of the rights there.
    let report = json(&options, &["doctor"], 1).await;
    let away = lines(&report, "connection");
    assert_eq!(away.len(), 1, "{report:#}");
    assert!(
        away[0].0 == "bad" && away[0].1.contains("refused"),
        "{report:#}"
    );
    assert_eq!(lines(&report, "rights").len(), 2, "{report:#}");
    let text = stdout(&ends(&options, &["doctor"], 1).await);
    assert!(text.contains("CLUSTER NODES"), "{text}");
    assert!(text.contains("cluster-announce-ip"), "{text}");
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
async fn every_command_works_behind_sentinels_also_after_a_failover() {
    let mut set = SentinelSet::start().await;
    let (url, keys) = (set.url(), ["job:1".to_owned(), "job:2".to_owned()]);
    let options = ["--url", url.as_str()];
    every_command_works(&options, &keys).await;
    let report = healthy_report(&options).await;
    let replicas = ("ok".to_owned(), "2 replicas".to_owned());
    assert_eq!(lines(&report, "replicas"), [replicas], "{report:#}");
    assert_eq!(lines(&report, "cluster"), []);

    let run = ["run", "job:3", "--", "sh", "-c", "echo running; read line"];
    let mut run = Process::start(PROGRAM, options.iter().copied().chain(run));
    run.expect("running", SOON).await;
    set.wait_until_all_have("job:3").await;
    set.fail_over().await;
    // The command goes on, and the others find the new master.
    eventually(SOON, "the new master has the lock", || async {
        let held = plain_output(["--url", &url, "who", "job:3"]).await;
        (held.status.code() == Some(0))
            .then_some(())
            .ok_or_else(|| stderr(&held))
    })
    .await;
    run.send("end");
    assert_eq!(run.wait(SOON * 2).await.code(), Some(0), "{}", run.stderr());

    // Unlike a single server, one behind Sentinels should have a replica.
    set.wait_until_stable().await;
    set.cut_replicas().await;
    let alone = healthy_report(&options).await;
    let none = ("warn".to_owned(), "none".to_owned());
    assert_eq!(lines(&alone, "replicas"), [none], "{alone:#}");
}

#[tokio::test]
async fn every_command_works_over_tls_with_the_authority_of_a_file() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = RedisServer::builder()
        .tls(&authority.server())
        .start()
        .await;
    let file = |name: &str, authority: &Authority| {
        let file = server.dir().join(name);
        std::fs::write(&file, authority.pem()).unwrap();
        file.display().to_string()
    };
    let (ours, theirs) = (file("ours.pem", &authority), file("theirs.pem", &other));
    let url = server.tls_url();
    let options = ["--url", url.as_str(), "--tls-ca-file", &ours];
    every_command_works(&options, &["job:1".to_owned(), "job:2".to_owned()]).await;
    healthy_report(&options).await;

    // A certificate that nobody vouches for is refused, with the reason.
    for refused in [
        &["--url", url.as_str(), "--tls-ca-file", &theirs] as &[&str],
        &options[..2],
    ] {
        let output = ends(refused, &["run", "job:1", "--", "echo", "started"], 77).await;
        assert!(
            stderr(&output).contains("UnknownIssuer"),
            "{}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "");
        let report = json(refused, &["doctor"], 77).await;
        assert_eq!(lines(&report, "connection")[0].0, "bad", "{report:#}");
    }
    // Not a certificate.
    let empty = server.dir().join("empty.pem");
    std::fs::write(&empty, "text").unwrap();
    let empty = [
        "--url",
        url.as_str(),
        "--tls-ca-file",
        empty.to_str().unwrap(),
    ];
    ends(&empty, &["ls"], 64).await;
}

#[tokio::test]
async fn client_certificate_server_name_and_password_come_from_files_and_options() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let certificate = servers.server_named("locks.example.com");
    let server = RedisServer::builder()
        .mutual_tls(&certificate, &clients)
        .start()
        .await;
    let user = ["ACL", "SETUSER", "shop", "on", "+@all", "~*", "&*", ">hush"];
    server.cli(&user).await;
    let file = |name: &str, text: &str| {
        let file = server.dir().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let own = clients.client();
    let (ca, certificate, key, password) = (
        file("ca.pem", servers.pem()),
        file("own.pem", &own.cert),
        file("own.key", &own.key),
        file("password", "hush\n"),
    );
    let url = server.tls_url().replace("//", "//shop@");
    let all = [
        "--url",
        url.as_str(),
        "--tls-ca-file",
        &ca,
        "--tls-server-name",
        "locks.example.com",
        "--password-file",
        &password,
        "--tls-client-cert-file",
        &certificate,
        "--tls-client-key-file",
        &key,
    ];
    let output = ends(&all, &["run", "job", "--", "echo", "started"], 0).await;
    assert_eq!(stdout(&output), "started\n");
    for (options, status, says) in [
        (&all[..8], 77, "--tls-client-cert-file"),
        (&all[..10], 64, "--tls-client-key-file"),
        (&all[2..], 64, "--url"),
    ] {
        let output = ends(options, &["run", "job", "--", "true"], status).await;
        let said = stderr(&output);
        assert!(said.contains(says), "{options:?}: {said}");
        assert!(!said.contains("hush") && !said.contains("_pem"), "{said}");
    }
}
