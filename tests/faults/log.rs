//! What the library warns of in this process. One log for all tests: a test finds its own lines by its key.

use std::io;
use std::sync::Mutex;

use tracing::level_filters::LevelFilter;

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

/// Begins to collect, before any test: a subscriber of one thread alone may be told nothing (an event that another
/// thread meets first counts as unwanted).
pub(crate) fn collect() {
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::INFO)
        .with_ansi(false)
        .with_writer(|| Writer)
        .init();
}

/// How many lines have all of these words.
pub(crate) fn lines_with(words: &[&str]) -> usize {
    let log = LOG.lock().unwrap();
    let log = String::from_utf8_lossy(&log);
    let all = |line: &&str| words.iter().all(|word| line.contains(word));
    log.lines().filter(all).count()
}
