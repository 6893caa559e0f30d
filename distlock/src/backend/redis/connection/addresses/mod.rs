//! Where servers are: what a URL says, the addresses that names stand for, and which of them the connections lead to.

mod address;
mod destination;
mod endpoint;
mod looked_at;
mod resolver;
pub(crate) mod url;

pub(crate) use self::address::{Address, Locate, Located};
pub(crate) use self::destination::{Destination, Next};
pub(crate) use self::endpoint::{Endpoint, first_of, in_common_order};
pub(crate) use self::looked_at::LookedAt;
pub(crate) use self::resolver::{Resolver, without_look_up};
