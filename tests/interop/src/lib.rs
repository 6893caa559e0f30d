//! distlock and a live Redisson, each in processes that a test tells what to do.
//!
//! Both programs speak one protocol, one JSON object a line; `tests/interop/redisson/README.md` describes it. A test therefore says
//! what one side does and what the other side does, and it is played in both directions.
//!
//! | module | what it has |
//! | --- | --- |
//! | [`protocol`] | the requests and the answers |
//! | [`peer`] | a running program of either side |
//! | [`serve`] | the program with distlock; the one with Redisson is in `tests/interop/redisson` |

#![allow(
    clippy::unwrap_used,
    reason = "a broken harness must fail the test at once"
)]

pub mod peer;
pub mod protocol;
pub mod serve;

pub use peer::{Actor, Peer, Pending, Side};
pub use protocol::{Call, Failure, Grant, Kind, Settings};
