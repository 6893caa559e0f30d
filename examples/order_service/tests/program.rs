//! The shop as a program: its console, its exporter, and two processes that sell one stock. `.ci/run examples` plays what needs
//! the features `metrics` and `redis`.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::time::{Duration, Instant};

use distlock_tests::{Process, eventually, http};
#[cfg(all(feature = "redis", unix))]
use distlock_tests::{Proxy, Select, Which};
use serde_json::Value;
#[cfg(unix)]
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
#[cfg(unix)]
use tokio::net::TcpStream;

/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Starts the shop with work that takes seconds, and returns the address of its console.
async fn serve(more: &[&str]) -> (Process, String) {
    let args = ["--serve", "127.0.0.1:0", "--traffic"];
    let args = args.iter().chain(more);
    let mut service = Process::start(env!("CARGO_BIN_EXE_order_service"), args);
    loop {
        let line = service.line(SOON).await;
        if let Some(console) = line.strip_suffix(" shows the locks in a browser") {
            return (service, console.to_owned());
        }
    }
}

/// A connection to the console's server, and the path of the console.
#[cfg(unix)]
async fn connect(console: &str) -> (TcpStream, &str) {
    let address = console.strip_prefix("http://").unwrap();
    let (host, path) = address.split_once('/').unwrap();
    (TcpStream::connect(host).await.unwrap(), path)
}

/// Opens the console's stream of events, as its page does.
#[cfg(unix)]
async fn open_page(console: &str) -> TcpStream {
    let (mut stream, path) = connect(console).await;
    let request = format!("GET /{path}/api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.read_exact(&mut [0]).await.unwrap();
    stream
}

#[tokio::test]
async fn traffic_shows_busy_locks_on_the_console() {
    let (_service, console) = serve(&[]).await;
    eventually(SOON, "holders and waiters on the console", || async {
        let seen = http::get(&format!("{console}/api/locks")).await;
        let seen: Value = serde_json::from_str(&seen).unwrap();
        let locks = seen["locks"].as_array().unwrap().iter();
        let mut waited_for = locks.filter(|lock| lock["waiting"].as_u64() > Some(0));
        // The lines of the code that waits are there as well.
        let waits = seen["own"]["waits"].as_array().unwrap().iter();
        let mut lines = waits.filter_map(|wait| wait["call_site"].as_str());
        let is_busy = waited_for.next().is_some() && lines.any(|line| line.contains("traffic.rs:"));
        is_busy.then_some(()).ok_or(seen)
    })
    .await;
}

#[cfg(feature = "metrics")]
#[tokio::test]
async fn traffic_counts_granted_locks_in_the_exported_metrics() {
    let address = format!("127.0.0.1:{}", distlock_tests::server::free_port());
    let (_service, _) = serve(&["--metrics", &address]).await;
    eventually(SOON, "metrics of granted locks", || async {
        let text = http::get(&format!("http://{address}/metrics")).await;
        // They are there from the start, and count only if locks do.
        let is_counted = |name: &str| {
            let lines = text.lines();
            let mut values = lines.filter_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            values.any(|value: f64| value > 0.0)
        };
        let is_told = text.contains("distlock_holds{kind=\"fair_lock\"}")
            && is_counted("distlock_acquisitions_total{kind=\"lock\",outcome=\"granted\"}")
            && is_counted("distlock_hold_seconds_bucket{kind=\"lock\",le=\"5\"}");
        is_told.then_some(()).ok_or(text)
    })
    .await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn two_processes_sell_one_stock_and_oversell_nothing() {
    let server = distlock_tests::RedisServer::start().await;
    let args = ["--redis", &server.url(), "--customers", "150"].map(str::to_owned);
    let sell = || {
        tokio::process::Command::new(env!("CARGO_BIN_EXE_order_service"))
            .args(&args)
            .output()
    };
    let (one, other) = tokio::join!(sell(), sell());
    for output in [one.unwrap(), other.unwrap()] {
        let said = String::from_utf8_lossy(&output.stdout);
        let log = String::from_utf8_lossy(&output.stderr);
        let is_right = output.status.success() && said.contains("nothing was oversold");
        assert!(is_right, "{said}\n{log}");
    }
}

/// The stock of one item can be taken, and its sales cannot be counted.
#[cfg(feature = "redis")]
#[tokio::test]
async fn sale_that_fails_in_its_middle_is_told_with_its_reason_and_is_not_oversold() {
    let server = distlock_tests::RedisServer::start().await;
    let url = server.url();
    // The first process has set the stock.
    let (_service, _) = serve(&["--redis", &url]).await;
    let rest = [
        "~shop:lock:*",
        "~shop:left:*",
        "~shop:unsure:*",
        "~shop:processes",
        "~*shop:lock:*",
    ];
    let sold = ["~shop:sold:lamp", "~shop:sold:table", "%R~shop:sold:chair"];
    let rule = [
        &["ACL", "SETUSER", "default", "resetkeys"],
        &rest[..],
        &sold,
    ]
    .concat();
    server.cli(&rule).await;
    let sell = tokio::process::Command::new(env!("CARGO_BIN_EXE_order_service"))
        .args(["--redis", &url, "--customers", "60"])
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&sell.stdout);
    assert!(
        sell.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&sell.stderr)
    );
    assert!(said.contains("sales failed in their middle"), "{said}");
    assert!(
        said.contains("a sale failed in its middle: ") && said.contains("requests failed: "),
        "{said}"
    );
    assert!(said.to_lowercase().contains("no permissions"), "{said}");
    assert!(said.contains("nothing was oversold"), "{said}");
}

#[cfg(all(feature = "redis", unix))]
#[tokio::test]
async fn lock_that_the_server_denies_is_500_and_its_key_is_not_told_to_customers() {
    let server = distlock_tests::RedisServer::start().await;
    let (_service, console) = serve(&["--redis", &server.url()]).await;
    // The layer can lock the order, and the attribute cannot lock the stock.
    let keys = ["~shop:lock:order:*", "~*shop:lock:order:*"];
    let rule = [&["ACL", "SETUSER", "default", "resetkeys"], &keys[..]].concat();
    server.cli(&rule).await;
    let (mut stream, _) = connect(&console).await;
    let order = b"POST /orders/1/items/lamp HTTP/1.0
Host: localhost

";
    stream.write_all(order).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 500"), "{answer}");
    assert!(answer.contains("urn:distlock:config"), "{answer}");
    assert!(
        !answer.contains("stock") && !answer.contains("shop"),
        "{answer}"
    );
}

/// Sends a request to the server of the console.
#[cfg(all(feature = "redis", unix))]
async fn request(console: &str, line: &str) -> TcpStream {
    let (mut stream, _) = connect(console).await;
    let request = format!("{line} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[cfg(all(feature = "redis", unix))]
async fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// The customer goes away after the item was taken off the stock, and repeats the request.
#[cfg(all(feature = "redis", unix))]
#[tokio::test]
async fn order_whose_customer_goes_away_in_the_middle_is_taken_off_the_stock_once() {
    let server = distlock_tests::RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let (_service, console) = serve(&["--redis", &proxy.url()]).await;
    let counting = proxy.hold(Select::ALL, Which::NEXT.containing("shop:sold:lamp"));
    let order = "POST /orders/1/items/lamp";
    let first = request(&console, order).await;
    let counting = counting.caught(SOON).await;
    drop(first);
    let second = request(&console, order).await;
    // The program notices that the customer has gone.
    tokio::time::sleep(Duration::from_millis(200)).await;
    counting.deliver().await.unwrap();
    let second = answer(second).await;
    assert!(second.starts_with("HTTP/1.0 200"), "{second}");
    let left = answer(request(&console, "GET /stock/lamp").await).await;
    assert!(left.ends_with("39\n"), "{left}");
}

/// The names of all locks in Redis.
#[cfg(feature = "redis")]
async fn locks(server: &distlock_tests::RedisServer) -> Vec<String> {
    let mut keys = server.keys().await;
    keys.retain(|key| key.starts_with("shop:lock:"));
    keys
}

#[cfg(all(feature = "redis", unix))]
#[tokio::test]
async fn program_that_is_told_to_end_releases_its_locks_by_sigterm_as_by_ctrl_c() {
    for end in [Process::terminate, Process::interrupt] {
        let server = distlock_tests::RedisServer::start().await;
        let (mut service, console) = serve(&["--redis", &server.url()]).await;
        // An open console is a request that does not end by itself.
        let _page = open_page(&console).await;
        eventually(SOON, "locks in Redis", || async {
            let held = locks(&server).await;
            (!held.is_empty()).then_some(()).ok_or(held)
        })
        .await;
        end(&service);
        assert!(service.wait(SOON).await.success(), "{}", service.stderr());
        assert_eq!(locks(&server).await, [""; 0]);
    }
}

#[cfg(all(feature = "redis", unix))]
#[tokio::test]
async fn traffic_goes_on_when_an_outage_is_over() {
    let mut server = distlock_tests::RedisServer::start().await;
    let (mut service, _) = serve(&["--redis", &server.url()]).await;
    server.kill();
    service.expect("a worker could not work: ", SOON).await;
    server.restart().await;
    eventually(SOON, "locks in Redis", || async {
        let held = locks(&server).await;
        (!held.is_empty()).then_some(()).ok_or(held)
    })
    .await;
    // The stock has a connection of its own, and the end needs it.
    service.terminate();
    assert!(service.wait(SOON).await.success(), "{}", service.stderr());
    assert_eq!(locks(&server).await, [""; 0]);
}

#[cfg(not(any(feature = "metrics", feature = "redis")))]
#[tokio::test]
async fn options_without_their_features_say_how_to_compile_them() {
    for (option, value) in [
        ("--redis", "redis://127.0.0.1:1"),
        ("--metrics", "127.0.0.1:1"),
    ] {
        let mut program = tokio::process::Command::new(env!("CARGO_BIN_EXE_order_service"));
        let output = program.args([option, value]).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        let feature = option.trim_start_matches("--");
        assert!(
            said.contains(&format!("--features {feature} -- ..")),
            "{said}"
        );
    }
}

/// A stream that nothing ends lasts for 5 s. A machine that stands still for as long is given another try.
#[cfg(unix)]
#[tokio::test]
async fn program_that_is_told_to_end_does_not_wait_for_the_stream_of_an_open_console() {
    let mut took = Vec::new();
    for _ in 0..4 {
        let (mut service, console) = serve(&[]).await;
        let opened = Instant::now();
        let _page = open_page(&console).await;
        service.terminate();
        assert!(service.wait(SOON).await.success(), "{}", service.stderr());
        if opened.elapsed() < Duration::from_secs(5) {
            return;
        }
        took.push(opened.elapsed());
    }
    panic!("the program has waited for the stream: {took:?}");
}

/// A request whose client sends no more of its body would keep the server for ever.
#[cfg(unix)]
#[tokio::test]
async fn program_that_is_told_to_end_does_not_wait_for_a_request_that_never_ends() {
    let (mut service, console) = serve(&[]).await;
    let (mut stream, path) = connect(&console).await;
    let head = format!(
        "POST /{path}/api/force-release HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // It has asked for the body, so the request is under way.
    let mut asked = [0; 12];
    stream.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100");
    service.terminate();
    let cut = service.line(SOON).await;
    assert!(cut.starts_with("requests that take longer"), "{cut}");
    assert!(service.wait(SOON).await.success(), "{}", service.stderr());
}
