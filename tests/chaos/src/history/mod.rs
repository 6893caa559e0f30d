//! The events of a run, and the rules that they may not violate.
//!
//! Every task and process records what it called, what was answered and when, on one clock. [`Operations`] groups the
//! events by acquisition, and [`check()`] looks for violations. Nothing here knows the crate under test.
//!
//! A *claim* is the time for which an owner was entitled to rely on its hold: from the return of its acquisition until it
//! calls its release, learns of the loss, or reaches its own deadline, whichever comes first. If the lock's data was
//! wiped in the server the claim ends at that time, since the owner learns of it only later. Two claims may overlap where
//! different masters have granted the lock: see [`overlaps`].

mod check;
mod circumstances;
mod coverage;
mod failover;
#[cfg(test)]
mod failover_tests;
mod latch;
#[cfg(test)]
mod leases_tests;
mod operation;
mod operations;
mod stalls;
#[cfg(test)]
mod stalls_tests;
#[cfg(test)]
mod test_events;

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use distlock_tests::pulse::Stall;
use serde::{Deserialize, Serialize};

pub use check::{Bounds, Violation, check};
pub use circumstances::circumstances;
pub use coverage::{contended, fault_coverage};
pub use failover::{Overlap, overlaps};
pub use latch::wrong_sum;
pub use operation::{Claim, Extension, LeakedPermit, Operation};
pub use operations::Operations;
pub use stalls::ProcessStalls;

/// Nanoseconds on the clock of a run; of all its processes, where there are several.
pub type Timestamp = u64;

/// An acquisition and all that follows from it, by process, task and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Id {
    /// The process; 0 is the process of the test.
    pub process: u32,
    /// The task in its process.
    pub task: u32,
    /// The operation of its task.
    pub number: u32,
}

impl Id {
    /// The next operation of the same task.
    #[must_use]
    pub fn next(self) -> Self {
        let number = self.number + 1;
        Self { number, ..self }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.process, self.task, self.number)
    }
}

/// Something that happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: EventKind,
}

/// What happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum EventKind {
    /// An acquisition began.
    Called {
        /// Which acquisition.
        id: Id,
        /// Which lock.
        key: String,
        /// The other key of a multi-lock.
        other_key: Option<String>,
        /// The longest time that it waits. `None`: without a limit. Zero: a single attempt.
        wait: Option<Timestamp>,
        /// Its fixed lease, if it has one.
        lease: Option<Timestamp>,
        /// Whether others may have it at the same time: readers.
        shared: bool,
        /// Whether it ends with a lease. A plain permit has none.
        leased: bool,
    },
    /// It was granted.
    Granted {
        /// Which acquisition.
        id: Id,
        /// The name of the hold in the server.
        owner: String,
        /// The owner's own deadline, as of now.
        deadline: Timestamp,
        /// Its fencing token, where the lock has them.
        token: Option<u64>,
    },
    /// It was refused.
    Refused {
        /// Which acquisition.
        id: Id,
        /// Why.
        why: Refusal,
    },
    /// Its caller stops polling it while it waits.
    Unpolled {
        /// Which acquisition.
        id: Id,
    },
    /// Its caller polls it again.
    Polled {
        /// Which acquisition.
        id: Id,
    },
    /// Its caller dropped it before it was answered.
    Abandoned {
        /// Which acquisition.
        id: Id,
    },
    /// The acquisition takes over a hold that was detached, or releases it.
    Takes {
        /// Which acquisition.
        id: Id,
        /// The one whose hold it was.
        from: Id,
    },
    /// The detached hold was released.
    Freed {
        /// Which acquisition.
        id: Id,
    },
    /// The key was seen free, and not acquired.
    SeenFree {
        /// Which acquisition.
        id: Id,
    },
    /// The owner's fixed lease was extended.
    Extended {
        /// Which acquisition.
        id: Id,
        /// When the longer lease was asked for.
        asked: Timestamp,
        /// The longer lease.
        lease: Timestamp,
        /// The owner's own deadline before that.
        before: Timestamp,
        /// The one after it.
        deadline: Timestamp,
    },
    /// The owner entered the guarded resource.
    Entered {
        /// Which acquisition.
        id: Id,
    },
    /// The owner wrote to the guarded resource.
    Wrote {
        /// Which acquisition.
        id: Id,
        /// False if another owner had entered since.
        accepted: bool,
    },
    /// The owner learned that its hold is lost.
    LossReported {
        /// Which acquisition.
        id: Id,
    },
    /// The owner begins to release, or drops its hold.
    Ending {
        /// Which acquisition.
        id: Id,
        /// The owner's own deadline, as of now.
        deadline: Timestamp,
    },
    /// The release was answered, or the hold dropped.
    Ended {
        /// Which acquisition.
        id: Id,
        /// How.
        how: End,
    },
    /// A latch released a waiter.
    LatchOpened {
        /// Which acquisition.
        id: Id,
    },
    /// A change of a latch began.
    Changing {
        /// Which acquisition.
        id: Id,
        /// Which latch.
        key: String,
        /// Which change.
        change: Change,
    },
    /// It was answered.
    Changed {
        /// Which acquisition.
        id: Id,
        /// The rest of the count. Where a latch was to be set: 1 if it was set, otherwise 0.
        answer: u64,
    },
    /// A fault that lasted until now.
    Fault(Fault),
    /// The timers of a process fired late, until now.
    Stalled {
        /// Which process.
        process: u32,
        /// From when to when.
        stall: Stall,
    },
    /// A process was killed.
    Killed {
        /// Which.
        process: u32,
    },
}

/// A change of a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// It is set, if there is none.
    Set,
    /// It is counted down by one.
    CountDown,
}

/// Why an acquisition was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// Others held the lock until the wait was over.
    Busy,
    /// The server did not answer.
    Unavailable,
    /// The server refuses the user.
    Denied,
    /// The hold around it was gone.
    Lost,
    /// Anything else, in its own words.
    Other(String),
}

/// How a hold ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// Its release was confirmed.
    Released,
    /// Its release found it gone.
    Lost,
    /// Its release had no answer.
    Unanswered,
    /// It was dropped.
    Dropped,
    /// It was left to its lease.
    Left,
    /// It was detached: nobody relies on it until it is attached, and its lease goes on.
    Detached,
    /// Anything else, in its own words.
    Other(String),
}

/// A fault, from when to when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Its kind.
    pub kind: String,
    /// Its begin.
    pub from: Timestamp,
    /// Its end, consequences included.
    pub to: Timestamp,
    /// What it did to the locks' data.
    pub wiped: Wiped,
    /// Which processes it kept from the server, or from running.
    pub affected: Affected,
    /// For how long after its end a key may still be free beside a waiter.
    pub heals: Timestamp,
    /// Whether it happened: a cut that met no connection did not.
    pub hit: bool,
    /// Whether the server may execute an attempt of its begin as late as its end.
    pub delays_attempts: bool,
    /// Whether the clients connect again at its end.
    pub reconnects: bool,
}

/// The kind of a fault after which a server has earlier data of a lock.
pub(crate) const STALE_COPY: &str = "stale copy";

impl Fault {
    /// Whether a server may have had earlier data of a lock after it.
    #[must_use]
    pub fn brings_back(&self) -> bool {
        self.kind == STALE_COPY || matches!(self.wiped, Wiped::Unreplicated { .. })
    }

    /// Whether no caller may notice it. Such a fault explains no delay and no error.
    #[must_use]
    pub fn is_unnoticed(&self) -> bool {
        self.affected == Affected::Unnoticed
    }
}

/// Which locks' data a fault took away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wiped {
    /// None.
    #[default]
    Nothing,
    /// Of one lock.
    One(String),
    /// Of all.
    Everything,
    /// Perhaps the last writes to these locks: a replica became the master and may lack them.
    Unreplicated {
        /// The locks of the master that was lost.
        keys: Vec<String>,
        /// The lost master executed no request that was sent after this time. If this is later than the end of the fault, the
        /// master was not killed, and its clients had left it by then.
        until: Timestamp,
    },
}

impl Wiped {
    /// Whether this lock's data was part of it.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::One(one) => one == key,
            Self::Everything => true,
            Self::Unreplicated { keys, .. } => keys.iter().any(|one| one == key),
        }
    }

    /// Whether this lock's data is gone for sure, if it was there.
    #[must_use]
    pub fn surely_has(&self, key: &str) -> bool {
        self.has(key) && !self.is_failover()
    }

    /// Whether another server became the master.
    #[must_use]
    pub fn is_failover(&self) -> bool {
        matches!(self, Self::Unreplicated { .. })
    }
}

/// Which processes a fault kept from the server, or from running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Affected {
    /// No process.
    #[default]
    Nobody,
    /// No process, and no caller may notice it, such as the move of a slot.
    Unnoticed,
    /// One process, which did not run at all.
    Process(u32),
    /// All processes, which did not reach the server.
    Everybody,
}

/// The events of a run, from all of its tasks.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Arc<Mutex<Vec<Event>>>,
}

impl History {
    /// Adds an event.
    ///
    /// # Panics
    /// If a thread panicked while it wrote.
    pub fn add(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }

    /// How many events of operations there are so far, and not of the machine.
    ///
    /// # Panics
    /// If a thread panicked while it wrote.
    #[must_use]
    pub fn operation_events(&self) -> usize {
        let events = self.events.lock().unwrap();
        let is_of_machine = |event: &&Event| matches!(event.what, EventKind::Stalled { .. });
        events.iter().filter(|event| !is_of_machine(event)).count()
    }

    /// All so far, in the order of their times.
    ///
    /// # Panics
    /// If a thread panicked while it wrote.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let mut events = self.events.lock().unwrap().clone();
        events.sort_by_key(|event| event.at);
        events
    }

    /// Writes all events to a file, one JSON value a line.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut text = String::new();
        for event in self.events() {
            text.push_str(&serde_json::to_string(&event)?);
            text.push('\n');
        }
        fs::write(path, text)
    }
}
