//! The connections to one server, which all lead to the same one of the addresses of its name.
//!
//! Another server may get that address, as in a failover behind a balancer. Connections that are open then often stay at the former
//! server, which goes on as a replica. So when the connection for commands is replaced, the others are replaced as well.

use std::sync::{Arc, Weak};

use tokio::time::Instant;

use crate::backend::redis::connection::addresses::{Destination, Endpoint, LookedAt};
use crate::backend::redis::connection::connect::Expected;
use crate::sync::Mutex;

/// One of the connections to a server.
pub(crate) trait Member: Send + Sync {
    /// Where it leads, or led last.
    fn endpoint(&self) -> Option<Endpoint>;

    /// Whether it stands.
    fn is_up(&self) -> bool;

    /// When it was established, if it stands.
    fn since(&self) -> Option<Instant>;

    /// When the connection before it was lost, if there was one.
    fn replaced_at(&self) -> Option<Instant>;

    /// What the server has to be.
    fn expected(&self) -> Expected;

    /// It leads to the wrong server, and is replaced. The right one is at this endpoint.
    fn leave_for(self: Arc<Self>, endpoint: &Endpoint);

    /// The server answers at this endpoint. Without a connection, it is tried again at once.
    fn server_is_at(&self, endpoint: &Endpoint);
}

/// The connections to one server.
#[derive(Default)]
pub(crate) struct Together {
    pub(crate) destination: Mutex<Destination>,
    pub(super) looked_at: Mutex<LookedAt>,
    members: Mutex<Vec<Weak<dyn Member>>>,
}

impl Together {
    /// These connections go together. The first one is that for commands, which the others follow.
    pub(crate) fn join(&self, members: impl IntoIterator<Item = Weak<dyn Member>>) {
        self.members.lock().extend(members);
    }

    /// The connections of which the client still has something.
    fn members(&self) -> Vec<Arc<dyn Member>> {
        let members = self.members.lock();
        members.iter().filter_map(Weak::upgrade).collect()
    }

    /// The connection that the others follow.
    pub(crate) fn leader(&self) -> Option<Arc<dyn Member>> {
        self.members.lock().first().and_then(Weak::upgrade)
    }

    /// Where a connection is to be made to, of these endpoints.
    pub(crate) fn order(&self, member: &dyn Member, endpoints: Vec<Endpoint>) -> Vec<Endpoint> {
        if let Some(at) = self.to_follow(member) {
            let is_same = |endpoint: &Endpoint| endpoint.address == at.address;
            if endpoints.iter().any(is_same) {
                return vec![at];
            }
        }
        self.destination.lock().order(endpoints, Instant::now())
    }

    /// A connection was made. Returns whether it leads to where the others do.
    pub(crate) fn connected(&self, member: &dyn Member, endpoint: &Endpoint) -> bool {
        let leader = self.leader();
        if leader.is_some_and(|leader| !is_same(&*leader, member)) {
            let at = self.to_follow(member);
            return at.is_none_or(|at| at == *endpoint || at.address != endpoint.address);
        }
        self.destination.lock().connected(endpoint.clone());
        self.looked_at.lock().connected();
        let replaced_at = member.replaced_at();
        for other in self.members() {
            let is_elsewhere = other
                .endpoint()
                .is_some_and(|at| at != *endpoint && at.address == endpoint.address);
            // Those that were made after the loss have asked the server for its role since.
            let is_older = other
                .since()
                .zip(replaced_at)
                .is_some_and(|(since, replaced_at)| since < replaced_at);
            if is_same(&*other, member) {
                continue;
            }
            if is_elsewhere || is_older {
                other.leave_for(endpoint);
            } else {
                other.server_is_at(endpoint);
            }
        }
        true
    }

    /// The connections lead to another address from now on.
    pub(crate) fn move_to(&self, endpoint: Endpoint) {
        self.destination
            .lock()
            .moved(endpoint.clone(), Instant::now());
        for member in self.members() {
            member.leave_for(&endpoint);
        }
    }

    /// Where the connection leads that this one follows, if there is one.
    fn to_follow(&self, member: &dyn Member) -> Option<Endpoint> {
        let leader = self.leader()?;
        let follows = !is_same(&*leader, member) && leader.is_up();
        follows.then(|| leader.endpoint()).flatten()
    }
}

fn is_same(one: &dyn Member, other: &dyn Member) -> bool {
    std::ptr::addr_eq(one, other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::redis::connection::addresses::Address;

    fn endpoint(port: u16) -> Endpoint {
        Endpoint {
            address: Address::Unix("name".into()),
            mapped: None,
            at: Some(([10, 0, 0, 1], port).into()),
        }
    }

    /// A connection that notes what it is told.
    struct Noting {
        endpoint: Option<Endpoint>,
        is_up: bool,
        told: Mutex<Vec<(&'static str, Endpoint)>>,
    }

    impl Noting {
        fn new(at: u16, is_up: bool) -> Arc<Self> {
            Arc::new(Self {
                endpoint: Some(endpoint(at)),
                is_up,
                told: Mutex::default(),
            })
        }
    }

    impl Member for Noting {
        fn endpoint(&self) -> Option<Endpoint> {
            self.endpoint.clone()
        }

        fn is_up(&self) -> bool {
            self.is_up
        }

        fn since(&self) -> Option<Instant> {
            self.is_up.then(Instant::now)
        }

        fn replaced_at(&self) -> Option<Instant> {
            None
        }

        fn expected(&self) -> Expected {
            Expected::Server
        }

        fn leave_for(self: Arc<Self>, endpoint: &Endpoint) {
            self.told.lock().push(("leave", endpoint.clone()));
        }

        fn server_is_at(&self, endpoint: &Endpoint) {
            self.told.lock().push(("is at", endpoint.clone()));
        }
    }

    #[tokio::test]
    async fn followers_learn_where_the_connection_for_commands_leads() {
        let (leader, away) = (Noting::new(1, true), Noting::new(2, false));
        let (here, elsewhere) = (Noting::new(1, false), Noting::new(2, true));
        let together = Together::default();
        let members = [&leader, &away, &here, &elsewhere];
        together.join(members.map(|one| Arc::downgrade(one) as Weak<dyn Member>));
        let at = endpoint(1);
        assert!(together.connected(&*leader, &at));
        let told = members.map(|one| one.told.lock().clone());
        let leave = vec![("leave", at.clone())];
        assert_eq!(told, [vec![], leave.clone(), vec![("is at", at)], leave]);
    }
}
