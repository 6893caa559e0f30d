//! The words in which a test names a fault: which connections, which way, which request, what.

use std::time::Duration;

use super::frame::{Frame, Side};

/// How the name of each connection begins that a Sentinel makes.
const SENTINEL_NAME: &str = "\r\nsentinel-";

/// What a connection is for, told by the commands it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Has sent nothing yet that goes beyond a handshake (HELLO, AUTH, CLIENT, SELECT, PING).
    Undecided,
    /// Has sent other commands, but never a subscription.
    Commands,
    /// Has sent a subscription; it stays a subscriber.
    Subscriber,
    /// A Sentinel's, which sends commands on one and listens on another.
    Sentinel,
    /// A replica's: after the handshake it carries the data and no replies.
    Replica,
}

impl Role {
    /// The role after another request.
    pub(super) fn after(self, request: &Frame) -> Self {
        match request.word().as_str() {
            _ if [Self::Subscriber, Self::Sentinel, Self::Replica].contains(&self) => self,
            command if is_subscription(command) => Self::Subscriber,
            "REPLCONF" | "PSYNC" | "SYNC" => Self::Replica,
            "CLIENT" if request.contains(SENTINEL_NAME) => Self::Sentinel,
            "HELLO" | "AUTH" | "CLIENT" | "SELECT" | "PING" => self,
            _ => Self::Commands,
        }
    }
}

/// Commands that are answered by pushes and not by a reply.
pub(super) fn is_subscription(command: &str) -> bool {
    matches!(
        command,
        "SUBSCRIBE" | "PSUBSCRIBE" | "SSUBSCRIBE" | "UNSUBSCRIBE" | "PUNSUBSCRIBE" | "SUNSUBSCRIBE"
    )
}

/// Directions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server: requests.
    Up,
    /// From the server to the client: replies and pushes.
    Down,
    /// Either direction.
    Both,
}

impl Way {
    pub(super) fn covers(self, from: Side) -> bool {
        match self {
            Self::Up => from == Side::Client,
            Self::Down => from == Side::Server,
            Self::Both => true,
        }
    }
}

/// How bytes move in a direction, until the test says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flow {
    /// At once.
    Pass,
    /// Not at all: the connection stays open, and what has come waits, the end of it included.
    Stall,
    /// Each message this long after it came. Later ones do not wait for the delay of earlier ones.
    Delay(Duration),
    /// At most this many bytes a second; the sender is held back when buffers are full.
    Throttle(u32),
    /// In segments of at most this many bytes.
    Rechunk(usize),
}

/// A set of connections. Evaluated for each message, so a role counts from the request that gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Select {
    age: Age,
    role: Option<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    Any,
    Existing,
    New,
    One(u64),
}

impl Select {
    /// Every connection, now and later.
    pub const ALL: Self = Self {
        age: Age::Any,
        role: None,
    };

    /// Those that are open when the fault is set.
    pub const EXISTING: Self = Self::ALL.existing();

    /// Those that come after the fault is set.
    pub const NEW: Self = Self::ALL.new_only();

    /// Those that have sent a subscription, from that request on.
    pub const SUBSCRIBERS: Self = Self {
        age: Age::Any,
        role: Some(Role::Subscriber),
    };

    /// Those that have sent a command beyond the handshake, but no subscription.
    pub const COMMANDS: Self = Self {
        age: Age::Any,
        role: Some(Role::Commands),
    };

    /// Those of replicas, from the first request that tells one.
    pub const REPLICAS: Self = Self {
        age: Age::Any,
        role: Some(Role::Replica),
    };

    /// Those of Sentinels.
    pub const SENTINELS: Self = Self {
        age: Age::Any,
        role: Some(Role::Sentinel),
    };

    /// The connection with this id, from [`super::Proxy::connections`].
    pub const fn one(id: u64) -> Self {
        Self {
            age: Age::One(id),
            role: None,
        }
    }

    /// Of these only the ones that are open when the fault is set.
    pub const fn existing(self) -> Self {
        Self {
            age: Age::Existing,
            role: self.role,
        }
    }

    /// Of these only the ones that come after the fault is set.
    pub const fn new_only(self) -> Self {
        Self {
            age: Age::New,
            role: self.role,
        }
    }

    /// Fixes what "existing" and "new" mean, given the id that the next connection will get.
    pub(super) fn at(self, next: u64) -> Selector {
        let (first, end) = match self.age {
            Age::Any => (0, u64::MAX),
            Age::Existing => (0, next),
            Age::New => (next, u64::MAX),
            Age::One(id) => (id, id + 1),
        };
        Selector {
            first,
            end,
            role: self.role,
        }
    }
}

/// A [`Select`] whose "now" is fixed: ids from `first` to before `end`.
#[derive(Clone, Debug)]
pub(super) struct Selector {
    first: u64,
    end: u64,
    role: Option<Role>,
}

impl Selector {
    pub(super) fn is_all(&self) -> bool {
        (self.first, self.end, self.role) == (0, u64::MAX, None)
    }

    pub(super) fn matches(&self, id: u64, role: Role) -> bool {
        (self.first..self.end).contains(&id) && self.role.is_none_or(|wanted| wanted == role)
    }
}

/// Which request a fault waits for. A number alone is the n-th of any kind, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Which {
    left: u64,
    text: String,
}

impl Which {
    /// The next request.
    pub const NEXT: Self = Self {
        left: 1,
        text: String::new(),
    };

    /// The n-th request from now, of all selected connections together. Handshakes count as well.
    pub const fn nth(n: u64) -> Self {
        Self {
            left: n,
            text: String::new(),
        }
    }

    /// Counts only requests with `text` in them: a command, a key, the hash of a script, in
    /// capitals or not.
    pub fn containing(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// Counts a request; whether it is the one.
    pub(super) fn is_met(&mut self, request: &Frame) -> bool {
        let counts = request.contains(&self.text);
        self.left = self.left.saturating_sub(u64::from(counts));
        counts && self.left == 0
    }
}

impl From<u64> for Which {
    fn from(n: u64) -> Self {
        Self::nth(n)
    }
}
