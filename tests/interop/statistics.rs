//! Figures that the suite prints at its end.

use std::time::Duration;

use parking_lot::Mutex;

static FIGURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The time of each trial.
static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// How many of the longest trials are printed.
const LONGEST: usize = 12;

/// Adds a line.
pub(crate) fn note(line: String) {
    FIGURES.lock().push(line);
}

/// A trial took so long.
pub(crate) fn took(trial: &str, time: Duration) {
    TIMES.lock().push((time, trial.to_owned()));
}

/// Prints all lines, in the order of their words, and the longest trials.
pub(crate) fn print() {
    let mut lines = FIGURES.lock().clone();
    lines.sort();
    println!();
    for line in lines {
        println!("{line}");
    }
    let mut times = TIMES.lock().clone();
    times.sort_by(|one, other| other.cmp(one));
    println!();
    for (time, trial) in times.into_iter().take(LONGEST) {
        println!("{:5.1} s  {trial}", time.as_secs_f64());
    }
}

/// The median and the value that 99 % do not exceed, of times in nanoseconds; as milliseconds.
pub(crate) fn median_and_99(mut times: Vec<u64>) -> (f64, f64) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    (at(50) as f64 / 1e6, at(99) as f64 / 1e6)
}
