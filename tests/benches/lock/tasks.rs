//! Many tasks at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

/// Tasks of most rows.
pub(crate) const TASKS: usize = 64;

/// Runs `work` again and again in one task, until the slice ends. Returns the microseconds that one call took. The first
/// calls are not counted, because they find a server that has slept while the other sides were measured.
pub(crate) async fn alone(slice: Duration, mut work: impl AsyncFnMut()) -> f64 {
    let start = Instant::now();
    while start.elapsed() < slice / 10 {
        work().await;
    }
    let (start, mut calls) = (Instant::now(), 0.0);
    while start.elapsed() < slice {
        work().await;
        calls += 1.0;
    }
    micros(start.elapsed()) / calls
}

/// Runs `work` in tasks until the slice ends: it gets the end, the number of its task and the task's counter. Returns
/// how often each task counted, and how long they took together.
pub(crate) async fn together<F>(
    tasks: usize,
    slice: Duration,
    work: impl Fn(Instant, usize, Arc<AtomicU64>) -> F,
) -> (Vec<f64>, Duration)
where
    F: Future<Output = ()> + Send + 'static,
{
    let counts: Vec<Arc<AtomicU64>> = (0..tasks).map(|_| Arc::default()).collect();
    let (start, mut running) = (Instant::now(), JoinSet::new());
    for (n, count) in counts.iter().enumerate() {
        running.spawn(work(start + slice, n, Arc::clone(count)));
    }
    running.join_all().await;
    let took = start.elapsed();
    let counts = counts.iter();
    let counts = counts.map(|count| count.load(Ordering::Relaxed) as f64);
    (counts.collect(), took)
}

/// Microseconds of one call, if all tasks together made the calls in this time.
pub(crate) fn per_call((counts, took): (Vec<f64>, Duration)) -> f64 {
    micros(took) / counts.iter().sum::<f64>()
}

pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Jain's index: 1 if all were served alike.
pub(crate) fn jain(served: &[f64]) -> f64 {
    let sum: f64 = served.iter().sum();
    let squares: f64 = served.iter().map(|n| n * n).sum();
    sum * sum / (served.len() as f64 * squares)
}
