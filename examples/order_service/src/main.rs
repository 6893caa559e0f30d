//! An order service that never oversells: the layer guards its axum routes, and the attribute guards its service functions.
//!
//! Without arguments, locks and stock are in memory, and the program sends orders to itself over HTTP. With `--redis`, locks
//! and stock are in Redis, and several processes can sell from one stock. `--unguarded` turns the locks off, which shows
//! the overselling that they prevent. `--redis` and `--metrics` need the features of the same names, because the driver and the
//! exporter double the time to compile.

mod drive;
mod http;
mod report;
mod routes;
mod shop;
mod stock;
mod traffic;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use clap::Parser;
use distlock::Client;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::shop::Shop;
use crate::stock::{MemoryStock, Stock};

/// The command line.
#[derive(Debug, Parser)]
#[command(
    about = "Sells a scarce stock to several hundred customers at once, and checks that nothing is oversold"
)]
struct Args {
    /// Keep locks and stock in this Redis, e.g. redis://127.0.0.1:6379; run it twice at once to share the stock
    #[arg(long, value_name = "URL")]
    redis: Option<String>,

    /// Turn the locks off, to see the overselling that they prevent
    #[arg(long)]
    unguarded: bool,

    /// Serve on this address, for example for curl, instead of sending orders to itself
    #[arg(long, value_name = "ADDR")]
    serve: Option<SocketAddr>,

    /// With --serve: do work that takes seconds, so that the console shows locks and waiters
    #[arg(long, requires = "serve")]
    traffic: bool,

    /// Export metrics for Prometheus on this address, for the dashboard and the alerts in examples/observability
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,

    /// How many customers order at once
    #[arg(long, default_value_t = 400)]
    customers: u64,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How long `close` waits for background releases.
const FLUSH: Duration = Duration::from_secs(5);

/// How long requests may take after the program was told to end. A client that sends its body slowly would take longer.
const GRACE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<ExitCode, Failure> {
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    let args = Args::parse();
    // Before the client is made: what happens earlier is not counted.
    if let Some(address) = args.metrics {
        export(address)?;
    }
    let (locks, stock) = backend(args.redis.as_deref()).await?;
    let shop = Shop::open(locks.clone(), stock, !args.unguarded).await?;
    let passed = match args.serve {
        Some(address) => serve(&shop, address, args.traffic).await.map(|()| true),
        None => sell(&shop, args.customers).await,
    };
    let closed = shop.close().await;
    // Also if the stock does not answer: locks that are still held would stay until their leases end.
    locks.close(FLUSH).await?;
    closed?;
    Ok(if passed? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Serves the metrics of this process, with buckets for times between one millisecond and one minute.
#[cfg(feature = "metrics")]
fn export(address: SocketAddr) -> Result<(), Failure> {
    metrics_exporter_prometheus::PrometheusBuilder::new()
        .set_buckets(&[0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0])?
        .with_http_listener(address)
        .install()?;
    println!("curl http://{address}/metrics");
    Ok(())
}

#[cfg(not(feature = "metrics"))]
fn export(_: SocketAddr) -> Result<(), Failure> {
    Err("--metrics needs a feature: cargo run --bin order_service --features metrics -- ..".into())
}

async fn backend(redis: Option<&str>) -> Result<(Client, Stock), Failure> {
    match redis {
        None => Ok((Client::in_memory(), Stock::Memory(MemoryStock::default()))),
        Some(url) => in_redis(url).await,
    }
}

#[cfg(feature = "redis")]
async fn in_redis(url: &str) -> Result<(Client, Stock), Failure> {
    let locks = Client::builder()
        .key_prefix("shop:lock:")
        .connect(url)
        .await?;
    let stock = stock::RedisStock::connect(url).await?;
    Ok((locks, Stock::Redis(stock)))
}

#[cfg(not(feature = "redis"))]
async fn in_redis(_: &str) -> Result<(Client, Stock), Failure> {
    Err("--redis needs a feature: cargo run --bin order_service --features redis -- ..".into())
}

/// Serves until the program is told to end, with a console of the locks.
///
/// A real program mounts the console behind its authentication, since everybody who reaches it can read it. It frees locks for
/// requests to `localhost` alone, unless `Console::hosts` names other hosts.
async fn serve(shop: &Shop, address: SocketAddr, traffic: bool) -> Result<(), Failure> {
    let (stop, stopped) = watch::channel(());
    let shutdown = |mut stopped: watch::Receiver<()>| async move { drop(stopped.changed().await) };
    // The pages that are open end their streams at once, so that the server does not wait for them.
    let console = distlock_tower::console(shop.locks.clone())
        .allow_force_release()
        .graceful_shutdown(shutdown(stopped.clone()));
    let router = routes::router(shop).nest_service("/locks", Router::from(console));
    let told_to_end = told_to_end()?;
    let listener = tokio::net::TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("curl -X POST http://{address}/orders/1/items/lamp");
    println!("curl -X POST http://{address}/orders/1/pay");
    println!("curl http://{address}/stock/lamp");
    println!("http://{address}/locks shows the locks in a browser");
    let _traffic = traffic.then(|| traffic::start(&shop.locks));
    let server = axum::serve(listener, router).with_graceful_shutdown(shutdown(stopped));
    let server = tokio::spawn(server.into_future());
    told_to_end.await;
    drop(stop);
    match timeout(GRACE, server).await {
        Ok(served) => served??,
        Err(_) => println!("requests that take longer than {GRACE:?} are cut"),
    }
    Ok(())
}

/// Ctrl-C in a terminal, SIGTERM from systemd, Docker and Kubernetes. From this call on neither of them kills the program.
#[cfg(unix)]
fn told_to_end() -> std::io::Result<impl Future<Output = Option<()>>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            told = interrupted.recv() => told,
            told = terminated.recv() => told,
        }
    })
}

#[cfg(not(unix))]
fn told_to_end() -> std::io::Result<impl Future<Output = Option<()>>> {
    Ok(async { tokio::signal::ctrl_c().await.ok() })
}

/// Lets customers order over HTTP, and returns whether the stock and the sales add up.
async fn sell(shop: &Shop, customers: u64) -> Result<bool, Failure> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(axum::serve(listener, routes::router(shop)).into_future());
    let seen = drive::customers(address, customers).await?;
    server.abort();
    let books = shop.books().await?;
    Ok(report::print(&seen, shop.waits(), &books))
}
