//! Real servers, real faults and the checks that hold `distlock` to its promises.
//!
//! Only [`any_lock`], [`faults`] and [`flaws`] know the crate under test; the suites bring it together with the other
//! tools. A tool that cannot do its work panics, so that the test fails. None of them skips in silence.
//!
//! | module | what it gives |
//! | --- | --- |
//! | [`server`] | a `redis-server` for one test: start, kill, stop, restart, ask; also a set of servers with Sentinels, and a cluster |
//! | [`certificates`] | certificates for a server with TLS and its clients, good and bad ones |
//! | [`proxy`] | the wire between client and server, with faults on it |
//! | [`resource`] | what the lock guards: it sees who is inside |
//! | [`any_lock`] | every exclusive lock behind one face |
//! | [`faults`], [`flaws`] | backends that delay, lose and double commands, or make a mistake on purpose; [`Disturbed`] builds them in |
//! | [`process`] | a child program that a test kills and stops |
//! | [`leaks`] | after a test: nothing is left over |
//! | `log` | what the library has logged in this process |
//! | `names` | where names lead, instead of the machine's resolver |
//! | [`rights`] | the rights that the guide lists |
//! | [`mod@drop_after`] | a future that is dropped in the middle |
//! | [`mod@eventually`] | waiting for a fact, with a deadline |
//! | [`http`] | one request of HTTP |
//! | [`environment`] | children start as in a plain shell |
//! | [`guardian`] | child processes that cannot outlive the tests |
//! | [`pulse`] | how late the machine is, for bounds in real time |
//! | [`plays`] | a test is played again whose machine stood still |
//! | [`mod@size`] | how much the tests do |

#![allow(
    clippy::unwrap_used,
    reason = "a broken harness must fail the test at once"
)]

#[cfg(feature = "test-util")]
pub mod any_lock;
pub mod certificates;
pub mod drop_after;
pub mod eventually;
pub mod http;
pub mod leaks;
#[cfg(feature = "test-util")]
pub mod log;
#[cfg(feature = "test-util")]
pub mod names;
pub mod plays;
pub mod process;
pub mod proxy;
pub mod pulse;
pub mod resource;
pub mod rights;
pub mod server;
pub mod size;

#[cfg(feature = "test-util")]
pub use distlock_test_backends::{Disturbed, faults, flaws};

#[cfg(feature = "test-util")]
pub use names::{ByNames, Names};

#[cfg(feature = "test-util")]
pub use any_lock::{AnyLock, LockKind, lock_once};
pub use certificates::{Authority, Certificate};
pub use drop_after::drop_after;
pub use eventually::{BY_MESSAGE, eventually, eventually_eq};
pub use leaks::Leaks;
pub use plays::play_until_it_counts;
pub use process::{Process, environment, guardian};
pub use proxy::{Fault, Flow, Held, Proxy, Select, Way, Which};
pub use pulse::Pulse;
pub use server::{RedisCluster, RedisServer, SentinelSet, listened};
pub use size::{long_size, size};
