//! Which keys a server has: what a scan looks for, how far it has come, and what it has found.

/// How far a scan has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanPosition {
    /// The servers that were read to their end.
    pub done: Vec<String>,
    /// The server that is being read.
    pub at: Option<ScanCursor>,
}

/// How far a scan of one server has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanCursor {
    /// The server's address.
    pub server: String,
    /// The number of the connection that has answered.
    pub epoch: u64,
    /// Where the next page begins.
    pub next: String,
}

/// The keys that a scan is to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanFilter<'a> {
    /// The pattern of their names, with the client's prefix.
    pub pattern: &'a str,
    /// What lives under them.
    pub sweep: Sweep,
}

/// What a scan looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Locks of all kinds.
    Locks,
    /// All numbers. A semaphore and a latch are one, and so is a counter of another program.
    Numbers,
    /// At least the numbers that a semaphore's owners, permits or listeners, or a latch's listeners, show to be one. It
    /// spares a look at each of the others.
    NumbersInUse,
}

/// A page of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The names of keys, with the client's prefix, each once.
    pub names: Vec<String>,
    /// How many names the server has told, with those that are left out here.
    pub looked_at: u64,
    /// The names that are not UTF-8, with their other bytes as `%FF`. No client of this crate can use such a key.
    pub no_text: Vec<String>,
    /// Where the next page begins; `None` if there is none.
    pub next: Option<ScanPosition>,
}
