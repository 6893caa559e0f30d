//! Every default, limit and interval, each with its unit and its reason.

#[cfg(feature = "redis")]
mod redis;

use std::ops::RangeInclusive;
use std::time::Duration;

use super::backoff::Backoff;

#[cfg(feature = "redis")]
pub(crate) use self::redis::*;

/// The lease of a hold that the watchdog renews: the default of Redisson's `lockWatchdogTimeout`.
pub(crate) const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(30);

/// The watchdog renews a hold each time its lease divided by this number has passed. Two renewals can therefore fail
/// before the lease ends.
pub(crate) const RENEWALS_PER_LEASE: u32 = 3;

/// How long one command may go unanswered before its outcome counts as unknown.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The response timeout is at most the watchdog's lease divided by this number, so that a failed renewal can be retried
/// several times before the lease ends.
pub(crate) const RESPONSE_TIMEOUTS_PER_LEASE: u32 = 6;

/// How long the server may leave all attempts of a client unanswered before its acquisitions fail.
pub(crate) const UNAVAILABLE_AFTER: Duration = Duration::from_secs(5);

/// After attempts of a client were not answered for this long, a wait that ends is reported as unavailable and not as a
/// timeout: several times the longest usual round trip.
pub(crate) const CONCLUSIVE_SILENCE: Duration = Duration::from_millis(500);

/// The longest name of a client in bytes: longer than the names of containers, and short enough for a table.
pub(crate) const MAX_NAME_BYTES: usize = 128;

/// How many keys a page of a scan goes through by default: a server needs far less than a millisecond for them.
pub(crate) const SCAN_PAGE: u32 = 200;

/// The most keys that a page of a scan can go through. The server answers no other client in the meantime.
pub(crate) const MAX_SCAN_PAGE: u32 = 10_000;

/// How many keys of a page are examined at the same time.
pub(crate) const EXAMINED_AT_ONCE: usize = 32;

/// The shortest lease. Redis counts leases in whole milliseconds, and a lease of 0 would delete the key.
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(1);

/// The shortest lease of a Redlock. 2 ms and a hundredth of each lease are set aside for clock drift, and a round of all
/// servers has to take less than the rest.
pub(crate) const MIN_QUORUM_LEASE: Duration = Duration::from_millis(10);

/// The longest lease, ten years: longer than any useful lease, and short enough that no sum of times overflows.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The longest wait, a year: tokio's timers can hold about two years.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The longest time that a number stays after its last use: it fits into 32 bits as milliseconds, and is longer than a month.
pub(crate) const MAX_EXPIRE_AFTER: Duration = Duration::from_secs(45 * 24 * 3600);

/// The most permits of a semaphore, and the highest count of a latch: Redisson stores both as signed 32-bit numbers.
pub(crate) const MAX_NUMBER: u32 = i32::MAX as u32;

/// The highest fencing token: a server counts with 63 bits.
pub(crate) const MAX_TOKEN: u64 = i64::MAX as u64;

/// [`MAX_NUMBER`] for a sum.
pub(crate) const MAX_SUM: u64 = MAX_NUMBER as u64;

/// The most permits of an expirable semaphore that one acquisition can take. Each permit is an entry in the server, and one
/// script works on all of them, which takes about 10 us for each.
pub(crate) const PERMITS_AT_ONCE: u32 = 1000;

/// How often one owner may have entered a read lock. Each entry is a key in the server, and scripts read no more entries of an
/// owner.
pub(crate) const MOST_ENTRIES: u32 = 1000;

/// The most holders of a read lock, or permits, that one answer about the holders lists.
pub(crate) const MOST_HOLDERS_TOLD: usize = 10_000;

/// How long a waiter sleeps at most if it does not know when to try again: the key has no TTL, or messages may not
/// arrive.
pub(crate) const MAX_SLEEP_WITHOUT_MESSAGE: Duration = Duration::from_secs(5);

/// How long the first waiter of a key sleeps without a message before it peeks at the key: a random part between these,
/// of [`MAX_SLEEP_WITHOUT_MESSAGE`]. A key can change without a message: it is deleted, its TTL is cut short, or another library
/// publishes nothing.
pub(crate) const PEEK_AFTER: RangeInclusive<f64> = 0.8..=0.97;

/// How long a peek waits for those of other waiters, which share its command. It bounds the commands per second.
pub(crate) const PEEK_WINDOW: Duration = Duration::from_millis(100);

/// How long a candidate for a leader's lock pauses before it attempts, for each other client that listens: a random part of this. The
/// server decides about an attempt in some 20 us, so a thousand candidates keep it busy for less than a tenth of the time.
pub(crate) const CANDIDATE_PAUSE: Duration = Duration::from_micros(250);

/// The longest pause of a candidate. Longer ones would leave a service without a leader.
pub(crate) const MOST_CANDIDATE_PAUSE: Duration = Duration::from_secs(1);

/// How often a candidate asks how many clients listen: a thousand of them send 17 commands a second.
pub(crate) const LISTENERS_COUNTED_EVERY: Duration = Duration::from_secs(60);

/// How many keys one command peeks at: with 10,000 waiters some 220 peeks fall into one window.
pub(crate) const PEEK_BATCH: usize = 250;

/// How many times in a row a client hands a hold over to its own next waiter before it releases the hold in the server.
///
/// Other processes can acquire the lock only after such a release, so this number and [`HAND_OVER_TIME`] limit how long
/// they wait. With 160 grants in a turn, the two round trips of a release cost little, also where a hold takes some
/// microseconds. The server grants the first of them, and this number counts those that follow.
pub(crate) const HAND_OVER_GRANTS: u32 = 159;

/// The same while no other client listened to the last release. The price: a client that starts to wait now
/// waits up to 512 grants, or for [`HAND_OVER_TIME_ALONE`] if that is longer.
pub(crate) const HAND_OVER_GRANTS_ALONE: u32 = 512;

/// While no other client listened to the last release, a client hands over for so long, however many grants that are. 512 holds of
/// some microseconds take less, and a round trip after them would be a tenth of the time.
pub(crate) const HAND_OVER_TIME_ALONE: Duration = Duration::from_millis(4);

/// How long a client hands a hold over to its own waiters before it releases the hold in the server.
pub(crate) const HAND_OVER_TIME: Duration = Duration::from_millis(50);

/// How long the first waiter behind a holder of its own client waits for a hand-over before it asks the server and
/// subscribes. If there is no hand-over within this time, the hold is expected to be a long one.
pub(crate) const OWN_HOLDER_TRUST: Duration = HAND_OVER_TIME;

/// How long the first waiter of a queue lets other processes go first if no message wakes it.
pub(crate) const YIELD_TIME: Duration = Duration::from_millis(20);

/// How many round trips the first waiter of a queue leaves at most to clients that have waited longer.
pub(crate) const MOST_AHEAD: u32 = 8;

/// The pause between two peeks at a key that other processes may take.
pub(crate) const YIELD_PEEK: Duration = Duration::from_millis(1);

/// If nobody took a key that was yielded, waiters do not wait for that again until this time has passed.
pub(crate) const YIELD_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long a waiter counts the turns of others by their messages alone, after a look has shown that a client of this crate has the
/// key. Then it looks again. A client of another library that comes meanwhile has one grant for each turn, until a look or a refusal
/// shows it. If it holds the key for very short times, that takes several looks.
pub(crate) const OURS_KNOWN_FOR: Duration = Duration::from_millis(200);

/// How long waiters look after each message who has a key, once a client of another library was seen with it. They look for at least
/// half of this time after the last sight of it.
pub(crate) const FOREIGN_KNOWN_FOR: Duration = Duration::from_secs(10);

/// How long the clients of another library together may take a key repeatedly, until each had as many grants as the last
/// turn of this client. Their waiters wake slowly, so this is twice the longest turn of this client.
pub(crate) const FOREIGN_TURN: Duration = HAND_OVER_TIME.saturating_mul(2);

/// The pauses between two tries of a command that failed.
pub(crate) const RETRY_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(20),
    longest: Duration::from_secs(1),
};

/// After this time, the log reports a wait.
pub(crate) const WARN_AFTER: Duration = Duration::from_secs(30);

/// The time between the start of a wait inside of a hold and the search for cycles of waits. Most waits are over by then, and
/// one search serves all waits that began in this time.
pub(crate) const CYCLES_AFTER: Duration = Duration::from_millis(100);

/// The number of keys whose long waits are reported at a time, each with its holder.
pub(crate) const LONG_WAITS_TOLD: usize = 16;

/// The pause between two reports of long waits; at most a tenth of the time after which a wait is long. Each report goes through all
/// waits of the client.
pub(crate) const LONG_WAITS_PAUSE: Duration = Duration::from_secs(1);

/// The number of holders that the report of a long wait names. A read lock may have thousands.
pub(crate) const HOLDERS_TOLD: usize = 3;

/// How many lost holds, and how many cycles of waits, a snapshot shows.
pub(crate) const LOSSES_SHOWN: usize = 20;
pub(crate) const CYCLES_SHOWN: usize = 20;

/// The number of holds that the log names when the time of a close is over. A busy server process has thousands.
pub(crate) const HOLDS_LOGGED_BY_CLOSE: usize = 10;

/// An acquisition of several keys may keep others from them, while it waits for the rest, for the time in which it let them
/// pass before, divided by this number. Then they lose at most a quarter of their time.
pub(crate) const WAIT_PER_COLLECTING: u32 = 3;

/// How often an acquisition of several keys tries to collect them before it pauses between the tries.
pub(crate) const COLLECTIONS_WITHOUT_REST: u32 = 3;

/// How long an acquisition of several keys rests at most: so long that it may collect for a watchdog's lease after that. Few
/// holds of other keys last longer.
pub(crate) const MOST_REST: Duration = WATCHDOG_TIMEOUT.saturating_mul(WAIT_PER_COLLECTING);

/// How long an acquisition of keys in several slots rests if a part was granted and another one refused, more than
/// [`COLLECTIONS_WITHOUT_REST`] times. Others may be in the same place, and all have to meet a moment when their keys are free.
pub(crate) const PART_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(1),
    longest: HAND_OVER_TIME,
};

/// The pause between two checks of the waiters that block others or have something in the server. A first waiter that is not
/// polled between two checks loses its place in the queue, and an acquisition loses what it was granted.
pub(crate) const WAITER_CHECK_PAUSE: Duration = Duration::from_secs(1);

/// How long a hold that is handed over goes without asking the server for it.
///
/// The server may have lost the hold in the meantime, and only an answer shows that. A key that is handed over all the
/// time costs at most a hundred such questions a second.
pub(crate) const CONFIRM_INTERVAL: Duration = Duration::from_millis(10);

/// How long a client remembers its answered releases and the holds that were gone. It releases them again when a connection is
/// re-established, because a server that takes over, or restarts, may have lost the writes of its last seconds.
pub(crate) const RELEASES_REMEMBERED: Duration = Duration::from_secs(5);

/// How many answered releases a client remembers at most: they take about 3 MB.
pub(crate) const MOST_RELEASES_REMEMBERED: usize = 10_000;

/// How many renewals one script call carries.
pub(crate) const RENEWAL_BATCH: usize = 100;

/// A batch is filled up with holds that are due soon: within the time between two renewals of a hold divided by this number.
/// They are renewed together from then on.
pub(crate) const RENEWED_EARLY: u32 = 10;

/// How often the log tells at most that renewals fail. The next line has the number of those that failed meanwhile.
pub(crate) const RENEWAL_FAILURES_TOLD_EVERY: Duration = Duration::from_secs(5);

/// How many batches of renewals a client sends concurrently: enough to use the connection well, few enough that even a
/// busy server answers each of them long before its timeout.
pub(crate) const RENEWALS_AT_ONCE: usize = 16;

/// A hold that is older is tracked: its loss is told at once. Most holds are shorter, and cost no command more.
pub(crate) const TRACK_AFTER: Duration = Duration::from_secs(1);

/// The time between two looks for holds that have become [that old](TRACK_AFTER).
pub(crate) const TRACK_LOOK: Duration = Duration::from_millis(500);

/// A key is read again at most once in this time because of a change, however many changes there are.
pub(crate) const TRACK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A key whose read was refused is read again after this time: the user may have got the right back. Seldom, since each of many
/// keys is refused alone.
pub(crate) const TRACK_REFUSED_AGAIN: Duration = Duration::from_secs(30);

/// How many background releases a client sends concurrently: few enough that a busy server answers each of them before
/// its timeout.
pub(crate) const RELEASES_AT_ONCE: usize = 256;

/// The shortest time for which a Redlock waits for the remaining servers after a quorum has answered. A grant that
/// arrives in this time is part of the hold as well.
pub(crate) const QUORUM_GRACE: Duration = Duration::from_millis(1);

/// A server that has refused a Redlock is asked whether it is one of those that have granted it. An acquisition waits this long
/// for the answer, longer if the servers are far away, and less if its wait or its lease is short. Without an answer it asks again in
/// the next round.
pub(crate) const ONE_SERVER_WITHIN: Duration = Duration::from_millis(250);

/// The longest random pause of a Redlock between two rounds: a few round trips, so that competing clients do not collide
/// again.
pub(crate) const QUORUM_JITTER: Duration = Duration::from_millis(20);

/// For how many keys a client remembers the highest fencing token: enough for every key that is in frequent use, in
/// little memory.
pub(crate) const TOKENS_KEPT: usize = 4096;

/// Of how many other clients a client remembers the names that reports told: more than usually share a server, in little memory.
pub(crate) const NAMES_KEPT: usize = 1024;

/// How long a copy of a process waits for a mutex of the original. A thread that is not in the copy may have locked it.
pub(crate) const COPIED_MUTEX: Duration = Duration::from_millis(100);

/// From this number of semaphores on, a client forgets those that nobody waits for.
pub(crate) const NUMBERS_KEPT: usize = 1024;

/// How long a waiter keeps its place in the server's queue after its last sign of life. A waiter sends three in that time.
pub(crate) const WAITER_TIMEOUT: Duration = Duration::from_secs(5);

/// How many signs of life a waiter sends within its timeout.
pub(crate) const SIGNS_PER_WAITER_TIMEOUT: u32 = 3;

/// After a write lock is released, the readers that waited for it are admitted for this long before the next writer of
/// this crate's clients.
pub(crate) const READERS_TURN: Duration = YIELD_TIME;

/// How long a refused reader still counts as waiting after the time for which it was refused.
pub(crate) const READERS_PATIENCE: Duration = MAX_SLEEP_WITHOUT_MESSAGE;

/// The pauses of a spin lock between two attempts: the same as Redisson's.
pub(crate) const SPIN_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(1),
    longest: Duration::from_millis(128),
};

/// For how many of its longest pauses a client with waiters has a spin lock after others had it, before it leaves the key free for one
/// such pause. Waiters that poll find a free key after a third of a pause on average, so the key is in use for most of the time.
pub(crate) const SPIN_TURN: u32 = 2;

/// The same after nobody took the key that was left free. The server does not say whether somebody polls. So this number decides how
/// much of its time a client that is alone loses, a ninth, and how long a new waiter of another client may wait for the first pause.
pub(crate) const SPIN_TURN_ALONE: u32 = 8;
