//! The guide: how to choose a primitive, how ownership works in async code, and how to move here from other libraries.
//!
//! These modules contain documentation only.
//!
//! | page | what it covers |
//! | --- | --- |
//! | [`quick_start`] | from an empty project to a first guarded route on a real Redis |
//! | [`cookbook`] | recipes: keys by header, body, user and tenant; nightly jobs; transactions; idempotency keys |
//! | [`choosing`] | which primitive to use, how long to hold and to wait, and which of the three ways to use it |
//! | [`why_not_set_nx`] | what is missing from a lock made of `SET NX PX` |
//! | [`ownership`] | who owns a lock in async code: scopes, branches, streams, spawned tasks, drops, and lost leases |
//! | [`layer`] | how to guard HTTP routes and other services with `distlock-tower` |
//! | [`timeouts`] | all times on one page: wait, lease, longest hold, response, outage |
//! | [`errors`] | which errors there are, what to do about each, and what to answer to an HTTP client |
//! | [`leader`] | one leader among several replicas, and jobs that run once per interval |
//! | [`logs_metrics_alerts`] | what a program says of its locks, and what to page on |
//! | [`stuck`] | from "requests hang" to the holder, and to the line that waits |
//! | [`production`] | what to check before locks go into production, by `distlock doctor` or by hand |
//! | [`limits`] | what no distributed lock can guarantee, and how fencing tokens help |
//! | [`transactions`] | how to combine a lock with a database transaction |
//! | [`testing`] | how to test code that locks, without a server: tests side by side, a server that is away, a lock that is lost |
//! | [`connections`] | the URLs of servers, Sentinel, users and passwords, and TLS |
//! | [`least_privilege`] | the ACL rules that each primitive, and each look at locks, needs on the server |
//! | [`hosted_services`] | Redis as a service: what works, what to set, what cannot work, and what was not tried |
//! | [`failover`] | what happens to locks when another server becomes the master, and which leases outlast that |
//! | [`cluster`] | Redis Cluster: slots that move, nodes that fail, and the keys that a cluster refuses |
//! | [`from_redisson`] | how Redisson's objects and methods map to this crate |
//! | [`sharing_with_redisson`] | how Rust and Java services share their locks: what is tested, what has to agree, what differs |
//! | [`what_is_in_redis`] | the format of every primitive, so that programs in other languages can join |
//! | [`from_lock4j`] | how the options of lock4j, Klock and ShedLock map to `#[distributed_lock]` |

#[doc = include_str!("choosing.md")]
pub mod choosing {}
#[doc = include_str!("cluster.md")]
pub mod cluster {}
#[doc = include_str!("connections.md")]
pub mod connections {}
#[doc = include_str!("cookbook.md")]
pub mod cookbook {}
#[doc = include_str!("errors.md")]
pub mod errors {}
#[doc = include_str!("failover.md")]
pub mod failover {}
#[doc = include_str!("from_lock4j.md")]
pub mod from_lock4j {}
#[doc = include_str!("from_redisson.md")]
pub mod from_redisson {}
// Its examples need the other crate: the package of the examples runs them.
#[cfg_attr(not(doctest), doc = include_str!("layer.md"))]
pub mod layer {}
#[doc = include_str!("hosted_services.md")]
pub mod hosted_services {}
#[doc = include_str!("leader.md")]
pub mod leader {}
#[doc = include_str!("least_privilege.md")]
pub mod least_privilege {}
#[doc = include_str!("limits.md")]
pub mod limits {}
#[doc = include_str!("logs_metrics_alerts.md")]
pub mod logs_metrics_alerts {}
#[doc = include_str!("ownership.md")]
pub mod ownership {}
#[doc = include_str!("production.md")]
pub mod production {}
// As for `layer`.
#[cfg_attr(not(doctest), doc = include_str!("quick_start.md"))]
pub mod quick_start {}
#[doc = include_str!("sharing_with_redisson.md")]
pub mod sharing_with_redisson {}
#[doc = include_str!("stuck.md")]
pub mod stuck {}
// Its examples use the feature.
#[cfg_attr(feature = "testing", doc = include_str!("testing.md"))]
#[cfg_attr(
    not(feature = "testing"),
    doc = "How to test code that locks, without a server. Build the documentation with the feature `testing` to read it."
)]
pub mod testing {}
#[doc = include_str!("timeouts.md")]
pub mod timeouts {}
#[doc = include_str!("transactions.md")]
pub mod transactions {}
#[doc = include_str!("what_is_in_redis.md")]
pub mod what_is_in_redis {}
#[doc = include_str!("why_not_set_nx.md")]
pub mod why_not_set_nx {}
