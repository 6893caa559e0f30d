//! Recorders of one thread, which see nothing of other tests: what each metric is at a moment, and recorders that replace others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock::Client;
use distlock_tests::lock_once;
use futures_util::future::poll_immediate;
use metrics::{
    Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    set_default_local_recorder,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{advance, sleep};

use crate::exported::sum;
use crate::files::read;

/// Never freed: another one at the same address would be taken for it.
fn recorder() -> &'static PrometheusRecorder {
    Box::leak(Box::new(PrometheusBuilder::new().build_recorder()))
}

/// What the recorder has under this name, for all reentrant locks.
fn value(recorder: &PrometheusRecorder, name: &str) -> f64 {
    let page = recorder.handle().render();
    sum(&page, &format!("distlock_{name}"), &[("kind", "lock")])
}

#[track_caller]
fn assert_values(recorder: &PrometheusRecorder, expected: &[(&str, f64)]) {
    for (name, expected) in expected {
        assert_eq!(value(recorder, name), *expected, "{name}");
    }
}

/// The values of a label that a metric has.
fn values_of(recorder: &PrometheusRecorder, name: &str, label: &str) -> BTreeSet<String> {
    let (page, begins) = (recorder.handle().render(), format!("{label}=\""));
    let series = page.lines().filter(|line| line.starts_with(name));
    let values = series.filter_map(|line| line.split_once(&begins)?.1.split('"').next());
    values.map(str::to_owned).collect()
}

/// The words in backticks of the text between two words of the guide.
fn words_of_the_guide(begins: &str, ends: &str) -> BTreeSet<String> {
    let guide = read("distlock/src/guide/logs_metrics_alerts.md");
    let (_, rest) = guide.split_once(begins).unwrap();
    let (text, _) = rest.split_once(ends).unwrap();
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn every_outcome_and_reason_exists_after_the_first_acquisition_and_the_making_of_a_layer() {
    let recorder = recorder();
    let _installed = set_default_local_recorder(recorder);
    let client = Client::in_memory();
    lock_once(&client, "first").await;
    let outcomes = words_of_the_guide("The outcomes are", "All outcomes");
    assert_eq!(outcomes.len(), 8, "{outcomes:?}");
    assert_eq!(
        values_of(recorder, "distlock_acquisitions_total", "outcome"),
        outcomes
    );
    let renewals = ["renewed", "gone", "failed"].map(str::to_owned);
    let shown = values_of(recorder, "distlock_renewals_total", "outcome");
    assert_eq!(shown, renewals.into());
    let losses = words_of_the_guide("even if only the release found it:", "; see");
    assert_eq!(losses.len(), 4, "{losses:?}");
    assert_eq!(
        values_of(recorder, "distlock_losses_total", "reason"),
        losses
    );
    assert!(
        recorder
            .handle()
            .render()
            .contains("distlock_releases_pending 0")
    );

    let _layer = distlock_tower::LockLayer::new(client).key(|_: &http::request::Parts| "k");
    let answers = words_of_the_guide("or whose lock was lost:", " |\n");
    assert_eq!(answers.len(), 7, "{answers:?}");
    assert_eq!(
        values_of(recorder, "distlock_tower_answers_total", "reason"),
        answers
    );
}

/// A class that only one of the tests has.
fn class(_: &str) -> &'static str {
    "of recorders"
}

#[tokio::test(start_paused = true)]
async fn gauges_are_right_during_a_run_of_hand_overs_and_after_it() {
    const TASKS: u32 = 8;
    const TURNS: u32 = 3;
    let recorder = recorder();
    let _installed = set_default_local_recorder(recorder);
    let lock = Client::in_memory().lock("hot");
    let first = lock.acquire().await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let lock = lock.clone();
        let handle = recorder.handle();
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let held = lock.acquire().await.unwrap();
                let page = handle.render();
                assert_eq!(sum(&page, "distlock_holds", &[]), 1.0);
                // All others wait, or have ended.
                let waiters = sum(&page, "distlock_waiters", &[]);
                assert!(waiters < f64::from(TASKS), "{waiters}");
                held.release().await.unwrap();
            }
        });
    }
    yield_now().await;
    assert_values(recorder, &[("holds", 1.0), ("waiters", TASKS.into())]);
    first.release().await.unwrap();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let all = f64::from(TASKS * TURNS + 1);
    assert_values(
        recorder,
        &[
            ("holds", 0.0),
            ("waiters", 0.0),
            ("acquisitions_total", all),
            ("acquire_wait_seconds_count", all),
            ("hold_seconds_count", all),
        ],
    );
    assert!(value(recorder, "hand_overs_total") > 0.0);
}

#[tokio::test(start_paused = true)]
async fn times_waited_and_held_are_those_of_the_clock() {
    let recorder = recorder();
    let _installed = set_default_local_recorder(recorder);
    let lock = Client::in_memory().lock("timed");
    let held = lock.acquire().await.unwrap();
    let next = tokio::spawn(lock.acquire().into_future());
    sleep(Duration::from_secs(2)).await;
    held.release().await.unwrap();
    let held = next.await.unwrap().unwrap();
    assert_values(recorder, &[("acquire_wait_seconds_sum", 2.0)]);
    sleep(Duration::from_secs(3)).await;
    held.release().await.unwrap();
    assert_values(
        recorder,
        &[("acquire_wait_seconds_sum", 2.0), ("hold_seconds_sum", 5.0)],
    );
}

#[tokio::test(start_paused = true)]
async fn each_recorder_counts_what_begins_under_it() {
    for client in [
        Client::builder(),
        Client::builder().metrics_key_class(class),
    ] {
        let client = client.in_memory(&distlock::MemoryServer::new()).unwrap();
        let (former, later) = (recorder(), recorder());
        let installed_former = set_default_local_recorder(former);
        let lock = client.lock("handed over");
        let held = lock.acquire().await.unwrap();
        let next = tokio::spawn(lock.acquire().into_future());
        yield_now().await;
        assert_values(former, &[("holds", 1.0), ("waiters", 1.0)]);

        // The hold and its waiter belong to the former recorder.
        let installed_later = set_default_local_recorder(later);
        held.release().await.unwrap();
        let held = next.await.unwrap().unwrap();
        assert_values(former, &[("holds", 1.0), ("waiters", 0.0)]);
        let other = client.lock("other").acquire().await.unwrap();
        assert_values(
            later,
            &[
                ("holds", 1.0),
                ("waiters", 0.0),
                ("acquisitions_total", 1.0),
            ],
        );
        held.release().await.unwrap();
        assert_values(later, &[("holds", 1.0)]);

        // The former one again.
        drop(installed_later);
        other.release().await.unwrap();
        let again = lock.acquire().await.unwrap();
        assert_values(former, &[("holds", 1.0), ("acquisitions_total", 3.0)]);
        again.release().await.unwrap();
        for recorder in [former, later] {
            assert_values(recorder, &[("holds", 0.0), ("waiters", 0.0)]);
        }
        drop(installed_former);
    }
}

#[tokio::test(start_paused = true)]
async fn lost_hold_is_counted_once_with_its_time_whoever_finds_the_loss() {
    let recorder = recorder();
    let _installed = set_default_local_recorder(recorder);
    let lock = Client::in_memory().lock("order:42");
    let lease = Duration::from_secs(10);
    let guard = lock.acquire().lease(lease).await.unwrap();
    // The guard finds it: no task runs while the time passes.
    assert!(poll_immediate(advance(lease)).await.is_none());
    drop(guard);
    assert_values(
        recorder,
        &[("losses_total", 1.0), ("hold_seconds_count", 1.0)],
    );
    let guard = lock.acquire().lease(lease).await.unwrap();
    // The watchdog finds it.
    sleep(2 * lease).await;
    drop(guard);
    assert_values(
        recorder,
        &[("losses_total", 2.0), ("hold_seconds_count", 2.0)],
    );
}

/// Panics at each renewal that it counts, as one does whose mutex is poisoned. It has the number of its panics.
#[derive(Default)]
struct PanicsAtRenewals(Arc<Panics>);

#[derive(Default)]
struct Panics(AtomicU32);

impl CounterFn for Panics {
    fn increment(&self, _: u64) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("a panic of this test");
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for PanicsAtRenewals {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() == "distlock_renewals_total" {
            Counter::from_arc(Arc::clone(&self.0))
        } else {
            Counter::noop()
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test(start_paused = true)]
async fn recorder_that_panics_at_each_renewal_ends_no_hold() {
    let recorder: &'static PanicsAtRenewals = Box::leak(Box::default());
    let _installed = set_default_local_recorder(recorder);
    let client = Client::in_memory();
    let mut guards = Vec::new();
    for key in ["one", "two"] {
        guards.push(client.lock(key).acquire().await.unwrap());
    }
    sleep(Duration::from_secs(100)).await;
    let panics = recorder.0.0.load(Ordering::Relaxed);
    assert!((5..50).contains(&panics), "{panics} panics");
    for guard in guards {
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
}
