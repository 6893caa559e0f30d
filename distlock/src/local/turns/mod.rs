//! Whose turn it is: how many grants follow each other in this client, and when the other clients that wait for a key go first.

mod round_robin;
mod run;
mod yield_list;

pub(crate) use self::round_robin::RoundRobin;
pub(super) use self::run::GrantRun;
pub(super) use self::yield_list::YieldList;
