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
    // The longest word is in few lines. The other lines are passed over by one search: tests ask again and again, and the log is that
    // of all tests of the program.
    let longest = words.iter().max_by_key(|word| word.len());
    let Some(longest) = longest.filter(|word| !word.is_empty()) else {
        return log.lines().count();
    };
    let (mut rest, mut lines) = (&*log, 0);
    while let Some(at) = rest.find(longest) {
        let begins = rest[..at].rfind('\n').map_or(0, |end| end + 1);
        let ends = rest[at..].find('\n').map_or(rest.len(), |end| at + end);
        let line = &rest[begins..ends];
        lines += usize::from(words.iter().all(|word| line.contains(word)));
        rest = &rest[ends..];
    }
    lines
}
