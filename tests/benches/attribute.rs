//! The cost of the attribute: time added to an uncontended call on the memory backend, and bytes added to its future.
//!
//! Run it with `cargo bench -p distlock-bench --bench attribute`. Rounds with and without the attribute alternate and are
//! short, so that most of them run undisturbed even on a busy machine. The first figure is the lower quartile. The same
//! lock taken with the builder is measured for comparison.

#![allow(missing_docs, reason = "a program")]

use std::hint::black_box;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use distlock::{Client, Error, distributed_lock};
use distlock_bench::quartiles;

const ROUNDS: usize = 1_001;
const CALLS: u32 = 100;

static LOCKS: LazyLock<Client> = LazyLock::new(Client::in_memory);

async fn bare(id: u64) -> Result<u64, Error> {
    Ok(black_box(id))
}

#[distributed_lock(key = "order:<id>", client = *LOCKS)]
async fn attribute(id: u64) -> Result<u64, Error> {
    Ok(black_box(id))
}

async fn by_hand(id: u64) -> Result<u64, Error> {
    let lock = LOCKS.lock(format!("order:{id}"));
    lock.acquire().try_run(async { Ok(black_box(id)) }).await
}

#[distributed_lock(keys = ["order:<id>", "stock:<id>", "item:<id>"], client = *LOCKS)]
async fn three_keys(id: u64) -> Result<u64, Error> {
    Ok(black_box(id))
}

#[distributed_lock(key = "order:<id>", client = *LOCKS)]
async fn nested(id: u64) -> Result<u64, Error> {
    attribute(id).await
}

#[distributed_lock(key = "order:<id>", client = *LOCKS, condition = false)]
async fn without_lock(id: u64) -> Result<u64, Error> {
    Ok(black_box(id))
}

fn main() {
    // The arguments are ignored: `cargo bench` and `cargo test --benches` pass flags that this program does not need.
    let runtime = tokio::runtime::Builder::new_current_thread();
    let Ok(runtime) = { runtime }.enable_all().build() else {
        panic!("no runtime to measure on");
    };
    println!(
        "microseconds added to the bare call, {ROUNDS} rounds: lower quartile (median, upper quartile)"
    );
    runtime.block_on(async {
        over_bare("the attribute, one key", attribute, "at most 5").await;
        over_bare("the same by hand", by_hand, "").await;
        over_bare("three keys", three_keys, "").await;
        over_bare("one key, entered again inside", nested, "").await;
        over_bare("with a condition that is false", without_lock, "").await;
    });
    println!("bytes of the future:");
    sizes::all();
}

/// Prints one line of the report.
async fn over_bare<F>(what: &str, call: impl Fn(u64) -> F, goal: &str)
where
    F: Future<Output = Result<u64, Error>>,
{
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let (bare, locked) = (calls(bare).await, calls(&call).await);
        rounds.push((locked.as_secs_f64() - bare.as_secs_f64()) * 1e6 / f64::from(CALLS));
    }
    let [low, median, high] = quartiles(rounds);
    let goal = if goal.is_empty() {
        goal.to_owned()
    } else {
        format!("  goal {goal}")
    };
    println!("{what:<40} {low:>7.2}  ({median:.2}, {high:.2}){goal}");
}

/// How long [`CALLS`] sequential calls take.
async fn calls<F>(call: impl Fn(u64) -> F) -> Duration
where
    F: Future<Output = Result<u64, Error>>,
{
    let start = Instant::now();
    for id in 0..u64::from(CALLS) {
        let done = call(black_box(id)).await;
        assert!(done.is_ok(), "{done:?}");
    }
    start.elapsed()
}

/// The same functions with and without the attribute.
mod sizes {
    use super::{Error, LOCKS, black_box, distributed_lock};

    macro_rules! twice {
        ($plain:ident, $locked:ident, $key:literal, ($($arg:ident: $ty:ty),*), $body:expr) => {
            async fn $plain($($arg: $ty),*) -> Result<u64, Error> {
                $body
            }

            #[distributed_lock(key = $key, client = *LOCKS)]
            async fn $locked($($arg: $ty),*) -> Result<u64, Error> {
                $body
            }
        };
    }

    async fn pause() {
        tokio::task::yield_now().await;
    }

    twice!(plain_none, locked_none, "k", (), {
        pause().await;
        Ok(0)
    });
    twice!(plain_one, locked_one, "<id>", (id: u64), {
        pause().await;
        Ok(id)
    });
    twice!(plain_borrowed, locked_borrowed, "<name>", (name: &str, large: &[u8; 4096]), {
        pause().await;
        Ok(name.len() as u64 + u64::from(large[0]))
    });
    twice!(plain_owned, locked_owned, "<name>", (name: String, large: [u8; 4096]), {
        pause().await;
        Ok(name.len() as u64 + u64::from(large[0]))
    });
    twice!(plain_inside, locked_inside, "<id>", (id: u64), {
        let large = black_box([0_u8; 4096]);
        pause().await;
        Ok(id + u64::from(large[0]))
    });

    fn line(what: &str, plain: usize, locked: usize) {
        let added = locked - plain;
        println!("{what:<40} {plain:>6} without, {locked:>6} with: {added:>6} more");
    }

    pub(super) fn all() {
        let large = [0; 4096];
        line(
            "no argument",
            size_of_val(&plain_none()),
            size_of_val(&locked_none()),
        );
        line(
            "one number",
            size_of_val(&plain_one(1)),
            size_of_val(&locked_one(1)),
        );
        line(
            "a &str and 4 KiB by reference",
            size_of_val(&plain_borrowed("a", &large)),
            size_of_val(&locked_borrowed("a", &large)),
        );
        line(
            "a String and 4 KiB by value",
            size_of_val(&plain_owned(String::new(), large)),
            size_of_val(&locked_owned(String::new(), large)),
        );
        line(
            "4 KiB made in the body",
            size_of_val(&plain_inside(1)),
            size_of_val(&locked_inside(1)),
        );
    }
}
