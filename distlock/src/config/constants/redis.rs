//! Defaults, limits and intervals of what only a client of a server has: connections, servers, messages, and how commands travel.

use std::time::Duration;

use crate::config::backoff::Backoff;

/// How long connecting may take, TLS and login included.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a look-up of a name may take before the addresses of the last one are used instead.
pub(crate) const LOOK_UP_PATIENCE: Duration = Duration::from_secs(1);

/// How often the names of connected servers are looked up again.
pub(crate) const LOOK_UP_INTERVAL: Duration = Duration::from_secs(5);

/// How often a connection asks for a sign of life. Servers and balancers close connections that are idle for minutes.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(30);

/// The time between two warnings that a connection has ended, for the same cause, and was replaced at once.
pub(crate) const ENDS_TOLD_AGAIN_AFTER: Duration = Duration::from_secs(300);

/// How many answers in a row have to be without the address of a connected server until the client looks for another one.
pub(crate) const ANSWERS_TO_MOVE: u32 = 3;

/// How long a client stays at the server that a name has led it to. The answers of some names change all the time.
pub(crate) const MOVE_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// How many names a client keeps the last addresses of. Those of the servers of a URL are few, and a cluster names its nodes.
pub(crate) const MOST_NAMES_KEPT: usize = 1_024;

/// When the next address of a name is tried, if the one before it has not answered.
pub(crate) const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// For how long a connection is not asked to track keys, after several connections in a row have ended when they were.
pub(crate) const TRACK_SPARED: Duration = Duration::from_secs(60);

/// The longest such time. Each further connection that ends doubles it.
pub(crate) const TRACK_SPARED_MOST: Duration = Duration::from_secs(3_600);

/// How many names of changed keys are kept until they are read. More count as all keys.
pub(crate) const MOST_NAMES_TOLD: usize = 10_000;

/// How many permits of one owner are read when a semaphore has changed. The next renewal finds out about the others.
pub(crate) const PERMITS_READ: u32 = 100;

/// How many attempts a client sends concurrently. Renewals and releases do not count against this limit.
pub(crate) const ATTEMPTS_AT_ONCE: usize = 512;

/// How many of these are sent by their callers. A caller that is not polled keeps its place, so the others are sent by tasks.
pub(crate) const ATTEMPTS_OF_CALLERS: usize = ATTEMPTS_AT_ONCE / 2;

/// How many attempts and releases of a runtime of a client are unanswered before what comes up next is collected. Fewer of them are
/// faster each for itself: the tasks of a batch wait for each other, and the server is idle while they go on.
pub(crate) const ALONE_AT_ONCE: usize = 16;

/// The same for readers. In a batch each of them costs the server far less than alone.
pub(crate) const READERS_ALONE_AT_ONCE: usize = 4;

/// How many batches of attempts and releases a runtime of a client has under way to a server before what comes up next waits for
/// others: while the server carries one out, the next one is written and the answers of the last one are read.
pub(crate) const BATCHES_AT_ONCE: usize = 4;

/// The same for readers. The more readers of a lock are in a batch, the less each costs the server.
pub(crate) const READER_BATCHES_AT_ONCE: usize = 2;

/// How long an attempt or a release waits for others at most, which matters where an answer takes longer: the shortest time that
/// tokio's timers can tell.
pub(crate) const WAIT_FOR_OTHERS: Duration = Duration::from_millis(1);

/// A batch has room for at least so many locks, however little is unanswered.
pub(crate) const LEAST_IN_BATCH: usize = 4;

/// The most locks in a batch. The server carries out nothing else meanwhile, which is some 100 us.
pub(crate) const MOST_IN_BATCH: usize = 32;

/// The most locks of one operation in a batch. With more of them it goes alone.
pub(crate) const MOST_IN_OPERATION: usize = 8;

/// What the names of a batch may take in bytes, so that its command is written at once. An operation with longer names goes alone in its
/// batch.
pub(crate) const BATCH_BYTES: usize = 16 * 1024;

/// How long a channel without waiters stays subscribed: on a busy key the next waiter comes soon.
pub(crate) const SUBSCRIPTION_LINGER: Duration = Duration::from_millis(250);

/// A subscription connection that was silent for this long is checked with a ping.
pub(crate) const SUBSCRIPTION_PING: Duration = Duration::from_secs(5);

/// The pauses between two tries to connect. [`Config::longest_reconnect_pause`] shortens them for a short lease.
pub(crate) const RECONNECT_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(20),
    longest: Duration::from_secs(2),
};

/// A connection that is older than this is replaced if its server loads its data: a new one may lead elsewhere, as behind a balancer. It
/// is the time between two looks at a name.
pub(crate) const LOADING_LEFT_AFTER: Duration = LOOK_UP_INTERVAL;

/// The pauses between connections grow that end within this time without an answer.
pub(crate) const SHORT_LIFE: Duration = Duration::from_secs(1);

/// The shortest pause between two tries to connect to a server that refused the last one, while somebody waits for the
/// connection. It grows to a quarter of the pause without anybody. Also the pause before a subscription is tried again that the server refused for the moment.
pub(crate) const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// How often each Sentinel is asked which server is the master, in case a message about another one was missed.
pub(crate) const SENTINEL_LOOK: Duration = Duration::from_secs(10);

/// How long Sentinels may go on naming a master that was replaced. They tell each other every two seconds. After this time
/// the ones that still name it are believed again, because the one that knew better may be gone.
pub(crate) const SENTINELS_AGREE_AFTER: Duration = Duration::from_secs(5);

/// After so long without an answer, what a Sentinel said last does not count any more. A restart takes some seconds.
pub(crate) const SENTINEL_GONE_AFTER: Duration = Duration::from_secs(10);

/// After this time without an answer to the handshake of TLS, a client finds out whether the server speaks TLS at all.
pub(crate) const HANDSHAKE_SILENCE: Duration = Duration::from_secs(1);

/// How long a client listens for why the server has ended its connection. The server says it at once, or not at all.
pub(crate) const GOODBYE_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a client reports what it heard then for further connections that the server ends. Clients that lost their
/// server should not come back with two connections for each.
pub(crate) const GOODBYE_AGAIN_AFTER: Duration = Duration::from_secs(3);

/// How much of that a client reads, in bytes. The longest text of a server has some 1,000.
pub(crate) const GOODBYE_LENGTH: u64 = 2_048;

/// How many commands the driver buffers until they are written to the socket.
pub(crate) const PIPELINE_BUFFER: usize = 1024;

/// How many answered requests a client remembers whose marks can go from their server.
pub(crate) const MOST_MARKS_KEPT: usize = 10_000;

/// How often a latch is looked at again because the server was replaced during the look.
pub(crate) const MOST_RUNS_SEEN: u32 = 4;

/// How often a command is sent to another node of a cluster, until it is given up.
pub(crate) const MOST_HOPS: u32 = 8;

/// The pauses of a command whose keys are on two nodes of a cluster, because their slot is on its way.
pub(crate) const TRY_AGAIN_PAUSE: Backoff = Backoff {
    first: Duration::from_millis(2),
    longest: Duration::from_millis(64),
};

/// The pauses between two reads of a cluster's map. The longest one is shorter than a second, so that waiters find the node
/// that took over within that time. During a failover of some seconds there are less than ten reads.
pub(crate) const MAP_PAUSE: Backoff = Backoff {
    first: Duration::from_millis(100),
    longest: Duration::from_millis(800),
};

/// How long a node may take to connect and to answer with the map.
pub(crate) const MAP_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a node without a connection may take, before another one is asked beside it. There may be many that have gone.
pub(crate) const MAP_NEXT_AFTER: Duration = Duration::from_millis(100);

/// The longest time between two looks at a cluster's map, also of a client that sends nothing. Redisson looks as often.
/// Within this time nodes that leave have to be known by the ones that replace them.
pub(crate) const MAP_INTERVAL: Duration = Duration::from_secs(5);

/// How long a node of a cluster is remembered that has no slot. It may be about to get one.
pub(crate) const NODE_LINGER: Duration = Duration::from_secs(10);

/// After this many unanswered commands in a row the connection is replaced. The driver does not do that itself.
pub(crate) const TIMEOUTS_TO_REPLACE: u32 = 2;

/// How often a function or a file is asked again for the credentials of open connections. Tokens of cloud providers live for
/// 15 minutes or longer, and a secret manager is not to be asked all the time.
pub(crate) const CREDENTIALS_INTERVAL: Duration = Duration::from_secs(300);
