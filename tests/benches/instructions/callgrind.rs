//! Runs a case under callgrind, which counts the instructions of all its threads. The server is not counted.

use std::process::Stdio;
use std::time::Duration;

use distlock_tests::RedisServer;
use tokio::process::Command;
use tokio::time::timeout;

use crate::parts::{self, BOUNDARY, Label};

/// A case takes some seconds; this is for a machine that does much else.
const DEADLINE: Duration = Duration::from_secs(600);

/// The exit code of a case for which the machine was too busy.
pub(crate) const TOO_BUSY: i32 = 75;

/// Why a case was not counted.
pub(crate) enum Uncounted {
    TooBusy,
    Failed(String),
}

/// Runs this program again, for one case. Returns the label and the instructions of each part.
pub(crate) async fn count(
    case: &str,
    server: &RedisServer,
) -> Result<Vec<(Label, u64)>, Uncounted> {
    let counts = server.dir().join(format!("{case}.callgrind"));
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--combine-dumps=yes"])
        // The sums are all that is read. Lines and strings would make large files.
        .args(["--dump-line=no", "--compress-strings=yes"])
        .arg(format!("--dump-before={BOUNDARY}"))
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(std::env::current_exe().unwrap())
        .args([case, &server.url()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output();
    let Ok(output) = timeout(DEADLINE, run).await else {
        let text = format!("{case} did not end within {DEADLINE:?}");
        return Err(Uncounted::Failed(text));
    };
    let output = output.expect("valgrind runs; install it, e.g. by `apt-get install valgrind`");
    match output.status.code() {
        Some(0) => {}
        Some(TOO_BUSY) => return Err(Uncounted::TooBusy),
        _ => {
            let text = format!("{case} failed: {}", output.status);
            return Err(Uncounted::Failed(text));
        }
    }
    let labels = String::from_utf8(output.stdout).unwrap();
    let labels: Vec<Label> = labels.lines().map(parts::label).collect();
    let counts = std::fs::read_to_string(counts).unwrap();
    let counts: Vec<u64> = counts
        .lines()
        .filter_map(|line| line.strip_prefix("totals: ")?.parse().ok())
        .collect();
    // The last part is the end of the program.
    assert_eq!(counts.len(), labels.len() + 1, "parts of {case}");
    Ok(labels.into_iter().zip(counts).collect())
}
