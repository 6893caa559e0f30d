//! A service that exports what its locks do: metrics for Prometheus, and spans for OpenTelemetry.
//!
//! Ten tasks serve orders under locks. The metrics are on a page that Prometheus reads, and the dashboard and the alert rules in
//! this folder show them. The spans go to the standard output. A service sends them to a collector: replace the exporter by that of
//! `opentelemetry-otlp`. The log goes to the standard error: most of what it says of losses and outages happens outside of a span.
//!
//! ```text
//! cargo run -p distlock-observability-example -- --redis redis://127.0.0.1:6379 --seconds 60
//! curl http://127.0.0.1:9000/metrics
//! ```

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use distlock::{Client, Health};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{Instrument as _, info_span};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// The buckets of the histograms, in seconds. Without them the exporter makes summaries, which cannot be added up.
const BUCKETS: [f64; 10] = [0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0];

/// How long a task rests after an order that was not served.
const AFTER_A_FAILURE: Duration = Duration::from_millis(500);

#[derive(Debug, Parser)]
struct Args {
    /// Keep the locks in this Redis, e.g. redis://127.0.0.1:6379, instead of in memory
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Where Prometheus reads the metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9000")]
    metrics: SocketAddr,
    /// How long to serve orders, unless Ctrl-C or SIGTERM ends the program before
    #[arg(long, default_value_t = 1)]
    seconds: u64,
}

/// The class of a key is a label of the metrics. There must be few of them.
fn class(key: &str) -> &'static str {
    match key.split_once(':') {
        Some(("order", _)) => "order",
        _ => "other",
    }
}

/// Takes the metrics of the process, and serves them at this address.
fn export_metrics(address: SocketAddr) -> Result<PrometheusHandle, Box<dyn Error>> {
    let builder = PrometheusBuilder::new().with_http_listener(address);
    let (recorder, exporter) = builder.set_buckets(&BUCKETS)?.build()?;
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder)?;
    tokio::spawn(exporter);
    Ok(handle)
}

/// Writes the log of the process, and takes its spans. Those of `distlock` are at the level debug.
fn export_log_and_spans() -> SdkTracerProvider {
    // A service has a batch exporter, which does not make a task wait for the collector.
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(opentelemetry_stdout::SpanExporter::default())
        .build();
    let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("orders"));
    let filter = Targets::new()
        .with_default(LevelFilter::INFO)
        .with_target("distlock", LevelFilter::DEBUG);
    let log = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    tracing_subscriber::registry()
        .with(spans.with_filter(filter))
        .with(log.with_filter(LevelFilter::INFO))
        .init();
    provider
}

async fn serve_order(client: &Client, order: usize) -> Result<(), distlock::Error> {
    let serving = async {
        let lock = client.lock(format!("order:{order}"));
        // A span inside that of the order.
        let guard = lock.acquire().wait(Duration::from_secs(5)).await?;
        sleep(Duration::from_millis(5)).await;
        guard.release().await
    };
    serving.instrument(info_span!("serve_order", order)).await
}

/// Ctrl-C in a terminal, SIGTERM from systemd, Docker and Kubernetes. From this call on neither of them kills the program.
#[cfg(unix)]
fn told_to_end() -> io::Result<impl Future<Output = Option<()>>> {
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
fn told_to_end() -> io::Result<impl Future<Output = Option<()>>> {
    Ok(async { tokio::signal::ctrl_c().await.ok() })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    // Before the first client: what happens earlier is not counted.
    let metrics = export_metrics(args.metrics)?;
    let spans = export_log_and_spans();
    println!("metrics: http://{}/metrics", args.metrics);

    let builder = Client::builder().name("orders").metrics_key_class(class);
    let client = match &args.redis {
        Some(url) => builder.connect_lazy(url)?,
        None => builder.in_memory(&distlock::MemoryServer::new())?,
    };
    let told_to_end = told_to_end()?;
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    for task in 0..10_usize {
        let (client, stopped) = (client.clone(), stopped.clone());
        tasks.spawn(async move {
            while !*stopped.borrow() {
                // The metrics count it as well.
                if let Err(error) = serve_order(&client, task % 3).await {
                    tracing::warn!(%error, "an order was not served");
                    // Some errors come at once, and the next order would meet them again.
                    sleep(AFTER_A_FAILURE).await;
                }
            }
        });
    }
    tokio::select! {
        () = sleep(Duration::from_secs(args.seconds)) => {}
        _ = told_to_end => {}
    }
    stop.send_replace(true);
    while let Some(served) = tasks.join_next().await {
        served?;
    }
    // What a readiness probe answers.
    match client.health() {
        Health::Connected => println!("health: ready"),
        other => println!("health: {other}"),
    }
    client.close(Duration::from_secs(5)).await?;
    spans.shutdown()?;

    let page = metrics.render();
    for line in page
        .lines()
        .filter(|line| line.starts_with("distlock_acquisitions_total"))
    {
        println!("{line}");
    }
    Ok(())
}
