//! What is logged in this process. All tests of a program share one log, and a test finds its own lines by its key or its server.
//!
//! A subscriber of one thread alone may be told nothing: an event that another thread meets first counts as unwanted.

use std::io;
use std::sync::{Mutex, Once};

use tracing_subscriber::filter::LevelFilter;

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Writer;

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Collects events of this level and above from now on. Only the first call of a process counts.
pub fn collect(level: LevelFilter) {
    static COLLECTS: Once = Once::new();
    COLLECTS.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(|| Writer)
            .init();
    });
}

/// How many lines have all of these words.
#[must_use]
pub fn lines_with(words: &[&str]) -> usize {
    let log = LOG.lock().unwrap();
    let log = String::from_utf8_lossy(&log);
    let all = |line: &&str| words.iter().all(|word| line.contains(word));
    log.lines().filter(all).count()
}
