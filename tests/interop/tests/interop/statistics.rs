//! Figures that the suite prints at its end.

use parking_lot::Mutex;

static FIGURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Adds a line.
pub(crate) fn note(line: String) {
    FIGURES.lock().push(line);
}

/// Prints all lines, in the order of their words.
pub(crate) fn print() {
    let mut lines = FIGURES.lock().clone();
    lines.sort();
    println!();
    for line in lines {
        println!("{line}");
    }
}

/// The median and the value that 99 % do not exceed, of times in nanoseconds; as milliseconds.
pub(crate) fn median_and_99(mut times: Vec<u64>) -> (f64, f64) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    (at(50) as f64 / 1e6, at(99) as f64 / 1e6)
}
