//! Random operations under random faults for as long as one likes, and a seed once more.
//!
//! `cargo run --release -p distlock-chaos --bin chaos -- --minutes 20`

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use distlock_chaos::redis::child::ChildConfig;
use distlock_chaos::{Outcome, memory, redis};
use distlock_tests::LockKind;
use distlock_tests::leaks::{open_files, resident};
use tokio::time::Instant;

/// Random operations under random faults: a soak, or a seed once more.
#[derive(Debug, Parser)]
struct Args {
    /// For how long, seed after seed.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// This seed only; nothing else is played.
    #[arg(long)]
    seed: Option<u64>,
    /// How often a seed is played: on a real server only its lists are the same each time.
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// What the locks lie on.
    #[arg(long, value_enum, default_value_t = Backend::Redis)]
    backend: Backend,
    /// Which kind of lock.
    #[arg(long, value_enum, default_value_t = LockKind::Reentrant)]
    lock: LockKind,
    /// How many seconds of each run faults happen.
    #[arg(long, default_value_t = 12.0)]
    seconds: f64,
    /// It is a child of such a run, with these orders in JSON.
    #[arg(long, hide = true)]
    worker: Option<String>,
    /// Where histories of failed runs go.
    #[arg(long, default_value = "target")]
    histories: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Backend {
    Memory,
    Redis,
}

impl Args {
    fn play(&self, seed: u64) -> Outcome {
        match self.backend {
            Backend::Memory => {
                let plan = memory::plan(seed, 1);
                let outcome = memory::run(&plan, self.lock, None);
                if !outcome.violations.is_empty() {
                    eprintln!("{plan}");
                }
                outcome
            }
            Backend::Redis => {
                let program = std::env::current_exe().expect("this program");
                let config = redis::RunConfig {
                    binary: program.display().to_string(),
                    scale: redis::Scale {
                        faulty: Duration::from_secs_f64(self.seconds),
                        ..redis::Scale::FULL
                    },
                    lock_kind: self.lock,
                    only_kills: false,
                };
                config.run(seed)
            }
        }
    }

    fn seeds(&self) -> Box<dyn Iterator<Item = u64>> {
        let end = Instant::now() + Duration::from_secs_f64(self.minutes * 60.0);
        match self.seed {
            Some(seed) => Box::new((0..self.times).map(move |_| seed)),
            None => Box::new(std::iter::from_fn(move || {
                (Instant::now() < end).then(rand::random)
            })),
        }
    }
}

/// What a child process of a run does.
#[tokio::main(flavor = "current_thread")]
async fn work(orders: &str) -> Result<(), Box<dyn Error>> {
    let orders: ChildConfig = serde_json::from_str(orders)?;
    Ok(orders.run().await?)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args = Args::parse();
    if let Some(orders) = &args.worker {
        work(orders)?;
        return Ok(ExitCode::SUCCESS);
    }
    let begin = Instant::now();
    let mut all = Outcome::default();
    let mut first = None;
    for seed in args.seeds() {
        let outcome = args.play(seed);
        let (memory, files) = (resident() / 1024, open_files());
        // After the first run: what is there once for all runs is there.
        let (memory_at_first, files_at_first) = *first.get_or_insert((memory, files));
        if !outcome.violations.is_empty() {
            outcome.save(&args.histories);
        }
        all.add(outcome);
        println!(
            "{:.0?} SEED={seed}: {} operations, {} violations; memory {memory} KiB ({memory_at_first} after the first \
             run), files {files} ({files_at_first})",
            begin.elapsed(),
            all.operations,
            all.violations.len(),
        );
    }
    print!("{all}");
    all.assert_sound();
    Ok(ExitCode::SUCCESS)
}
