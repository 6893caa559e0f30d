//! A soak of random operations under random faults, for any time; or one seed, played again.
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

/// Random operations under random faults: a soak, or one seed again.
#[derive(Debug, Parser)]
struct Args {
    /// How long to play seed after seed.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Plays this seed only.
    #[arg(long)]
    seed: Option<u64>,
    /// How often a seed is played: on a real server only its lists are the same each time.
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// The backend of the locks.
    #[arg(long, value_enum, default_value_t = Backend::Redis)]
    backend: Backend,
    /// The kind of lock.
    #[arg(long, value_enum, default_value_t = LockKind::Reentrant)]
    lock: LockKind,
    /// How many seconds of each run faults happen.
    #[arg(long, default_value_t = 12.0)]
    seconds: f64,
    /// Runs as a child process, with this configuration in JSON.
    #[arg(long, hide = true)]
    worker: Option<String>,
    /// The directory for histories of failed runs.
    #[arg(long, default_value = "target")]
    histories: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Backend {
    Memory,
    Redis,
    Cluster,
    Sentinel,
}

impl Args {
    fn play(&self, seed: u64) -> Outcome {
        let ground = match self.backend {
            Backend::Memory => {
                let plan = memory::plan(seed, 1, self.lock);
                let outcome = memory::run(&plan, self.lock, None);
                if !outcome.violations.is_empty() {
                    eprintln!("{plan}");
                }
                return outcome;
            }
            Backend::Redis => redis::Ground::Server,
            Backend::Cluster => redis::Ground::Cluster,
            Backend::Sentinel => redis::Ground::Sentinel,
        };
        let program = std::env::current_exe().expect("this program");
        let scale = redis::Scale::FULL.with_faults_for(Duration::from_secs_f64(self.seconds));
        let config = redis::RunConfig::new(&program.display().to_string(), self.lock, scale);
        config.on(ground).run(seed)
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

/// The main function of a child process.
#[tokio::main(flavor = "current_thread")]
async fn work(config: &str) -> Result<(), Box<dyn Error>> {
    let config: ChildConfig = serde_json::from_str(config)?;
    Ok(config.run().await?)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args = Args::parse();
    if let Some(config) = &args.worker {
        work(config)?;
        return Ok(ExitCode::SUCCESS);
    }
    let begin = Instant::now();
    let mut all = Outcome::default();
    let mut first = None;
    for seed in args.seeds() {
        let outcome = args.play(seed);
        let (memory, files) = (resident() / 1024, open_files());
        // After the first run, which allocates what all runs share.
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
    Ok(if all.violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
