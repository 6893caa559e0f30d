//! Looks at one key in the server: which primitive lives there, and who holds it or waits for it.

use std::collections::HashMap;
use std::fmt::Display;

use uuid::Uuid;

use super::Client;
use crate::backend::reports::{
    ClientReport, HolderReport, KeyReport, PermitsReport, Primitive, WaiterReport, client_id,
};
use crate::backend::{Examined, Fault, HolderSeen, Listeners, ValueSeen};
use crate::error::Error;
use crate::resource::key::Key;
use crate::session::Session;

/// The right without which the names of clients are unknown.
const NAMES: &str = "+client|list";

/// What the server stores at the end of an owner that has released its lock.
const RELEASED: &str = ":rest";

impl Client {
    /// Looks at one key in the server: which primitive lives there, of this crate or of Redisson, who holds it and for how long,
    /// who waits, and which clients they are.
    ///
    /// A key that is free, or that belongs to another program, is reported as such and is no error. Nothing is changed. On a
    /// server the look is one script, and `CLIENT LIST` if somebody holds the key or waits for it.
    ///
    /// The user needs rights that locks do not need; the page [`least_privilege`](crate::guide::least_privilege) of the guide
    /// lists them. Without the optional ones the report is there and says
    /// [what is missing](KeyReport::missing_rights).
    ///
    /// # Errors
    /// * [`Error::InvalidKey`]: the key is empty or too long.
    /// * [`Error::Denied`]: the user lacks a right.
    /// * [`Error::Unavailable`]: the server did not answer. It is asked once.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MemoryServer};
    ///
    /// let server = MemoryServer::new();
    /// let client = Client::builder().name("orders-7f9c").in_memory(&server)?;
    /// let _guard = client.lock("order:42").acquire().await?;
    ///
    /// let report = client.inspect("order:42").await?;
    /// for holder in &report.holders {
    ///     let name = holder.client.as_ref().map_or("unknown", |client| client.name.as_str());
    ///     println!("{} holds {} for another {:?}", name, report.key, holder.lease_left);
    ///     assert_eq!(name, "orders-7f9c");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self, key: impl Into<String>) -> Result<KeyReport, Error> {
        let session = &*self.session();
        let key = Key::new(&session.config.key_prefix, &key.into())?;
        let since = session.now();
        let failed = |fault: Fault| fault.into_error(&key, session.now().since(since));
        let examined = session.backend.examine(&key).await.map_err(failed)?;
        let mut report = report(session, &key, &examined);
        let mut names = Names::default();
        names
            .learn(session, &key, [&report])
            .await
            .map_err(failed)?;
        names.resolve(&mut report);
        Ok(report)
    }
}

/// The names of clients, as the servers report them.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: HashMap<Uuid, Option<ClientReport>>,
    /// The user may not ask for them.
    are_denied: bool,
}

impl Names {
    /// Asks the server of a key for the names of the clients in its reports, unless all are known. A client that no server
    /// has a name for is not asked for again.
    pub(super) async fn learn(
        &mut self,
        session: &Session,
        key: &Key,
        reports: impl IntoIterator<Item = &KeyReport>,
    ) -> Result<(), Fault> {
        let reports = reports.into_iter();
        let unknown = reports
            .flat_map(clients)
            .filter(|id| !self.known.contains_key(id));
        let unknown: Vec<Uuid> = unknown.collect();
        if unknown.is_empty() || self.are_denied {
            return Ok(());
        }
        let named = match session.backend.named_clients(key).await {
            Ok(named) => named,
            Err(Fault::Denied(_)) => {
                self.are_denied = true;
                return Ok(());
            }
            Err(fault) => return Err(fault),
        };
        self.known.extend(unknown.into_iter().map(|id| (id, None)));
        for client in named {
            session.saw_name(client.id, &client.name);
            let known = self.known.entry(client.id).or_default();
            // Of several connections the first one is the oldest, that for commands.
            known.get_or_insert(ClientReport {
                name: client.name,
                address: client.address,
            });
        }
        Ok(())
    }

    /// Puts the names into a report.
    pub(super) fn resolve(&self, report: &mut KeyReport) {
        let has_clients = clients(report).next().is_some();
        let client = |id: Option<Uuid>| self.known.get(&id?)?.clone();
        for holder in &mut report.holders {
            holder.client = client(holder.client_id());
        }
        for waiter in &mut report.waiters {
            waiter.client = client(waiter.client_id());
        }
        if self.are_denied && has_clients {
            report.missing_rights.push(NAMES);
        }
    }
}

/// The clients of a report.
fn clients(report: &KeyReport) -> impl Iterator<Item = Uuid> + '_ {
    let holders = report.holders.iter().filter_map(HolderReport::client_id);
    holders.chain(report.waiters.iter().filter_map(WaiterReport::client_id))
}

/// The report of a server on a key, without the names of the clients.
pub(super) fn report(session: &Session, key: &Key, examined: &Examined) -> KeyReport {
    let primitive = primitive(examined);
    let (holders, holder_total) = holders(session, examined, primitive);
    let waiters = examined.queue.items.iter();
    let waiters: Vec<WaiterReport> = waiters
        .map(|(owner, left)| WaiterReport {
            owner: text(owner),
            place_left: *left,
            client: None,
        })
        .collect();
    let number = match examined.value {
        ValueSeen::Number(number) => Some(number),
        _ => None,
    };
    let is_count = matches!(primitive, Primitive::CountDownLatch | Primitive::Number);
    let listeners = examined
        .listeners
        .map(|listeners| listening(&listeners, primitive, &waiters));
    KeyReport {
        key: key.text().to_owned(),
        primitive,
        holders,
        holder_total,
        waiter_total: examined.queue.total,
        waiters,
        expires_in: examined.ttl,
        permits: permits(examined, primitive),
        count: number.filter(|_| is_count),
        fencing_token: examined.token,
        listeners: listeners.ok(),
        missing_rights: listeners.err().into_iter().collect(),
        fault: None,
    }
}

/// The report of a key that could not be read.
pub(super) fn unreadable(key: &Key, fault: impl Display) -> KeyReport {
    KeyReport {
        key: key.text().to_owned(),
        primitive: Primitive::Unreadable,
        holders: Vec::new(),
        holder_total: 0,
        waiters: Vec::new(),
        waiter_total: 0,
        expires_in: None,
        permits: None,
        count: None,
        fencing_token: None,
        listeners: None,
        missing_rights: Vec::new(),
        fault: Some(fault.to_string()),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Which primitive lives under a key.
fn primitive(examined: &Examined) -> Primitive {
    let is_waited_for = examined.queue.total > 0;
    match &examined.value {
        ValueSeen::Nothing | ValueSeen::Lock(_) if is_waited_for => Primitive::FairLock,
        ValueSeen::Nothing | ValueSeen::Lock(_) if examined.token.is_some() => {
            Primitive::FencedLock
        }
        ValueSeen::Nothing => Primitive::Nothing,
        ValueSeen::Lock(_) => Primitive::Lock,
        ValueSeen::ReadWrite {
            is_written: true, ..
        } => Primitive::WriteLock,
        ValueSeen::ReadWrite { .. } => Primitive::ReadLock,
        ValueSeen::Number(_) => {
            let listeners = examined.listeners.unwrap_or_default();
            if examined.permits.total + examined.ended_permits > 0 {
                Primitive::ExpirableSemaphore
            } else if examined.permit_owners.total > 0 {
                Primitive::Semaphore
            } else if listeners.latch > 0 {
                Primitive::CountDownLatch
            } else if listeners.semaphore > 0 {
                Primitive::Semaphore
            } else {
                Primitive::Number
            }
        }
        ValueSeen::Other => Primitive::OtherData,
    }
}

fn holders(
    session: &Session,
    examined: &Examined,
    primitive: Primitive,
) -> (Vec<HolderReport>, u64) {
    let holder = |owner: &[u8], count, lease_left| {
        let owner = text(owner);
        HolderReport {
            count: own_count(session, &owner).map_or(count, u64::from),
            is_released: owner.ends_with(RELEASED),
            owner,
            lease_left,
            client: None,
        }
    };
    let (mut holders, total): (Vec<_>, u64) = match (&examined.value, primitive) {
        (
            ValueSeen::Lock(listed)
            | ValueSeen::ReadWrite {
                holders: listed, ..
            },
            _,
        ) => {
            let seen = |seen: &HolderSeen| holder(&seen.owner, seen.count, seen.left);
            (listed.items.iter().map(seen).collect(), listed.total)
        }
        (_, Primitive::ExpirableSemaphore) => {
            let permits = examined.permits.items.iter();
            let permits = permits.map(|(id, left)| holder(id, 1, *left));
            (permits.collect(), examined.permits.total)
        }
        (_, Primitive::Semaphore) => {
            let owners = examined.permit_owners.items.iter();
            let owners = owners.map(|(owner, permits)| HolderReport {
                count: *permits,
                ..holder(owner, 0, None)
            });
            (owners.collect(), examined.permit_owners.total)
        }
        _ => (Vec::new(), 0),
    };
    holders.sort_unstable_by(|one, two| one.owner.cmp(&two.owner));
    holders.truncate(KeyReport::MOST_LISTED);
    (holders, total)
}

/// The count of a hold of this client, which the server may not have heard of yet.
fn own_count(session: &Session, owner: &str) -> Option<u32> {
    let is_own = client_id(owner.as_bytes()) == Some(session.id);
    let number = owner.split(':').nth(1).filter(|_| is_own)?;
    session.count_of(number.parse().ok()?)
}

fn permits(examined: &Examined, primitive: Primitive) -> Option<PermitsReport> {
    let ValueSeen::Number(number) = examined.value else {
        return None;
    };
    match primitive {
        Primitive::ExpirableSemaphore => Some(PermitsReport {
            // Permits that have ended are free, and are taken back by the next change.
            free: number.saturating_add_unsigned(examined.ended_permits),
            taken: examined.permits.total,
        }),
        Primitive::Semaphore => Some(PermitsReport {
            free: number,
            taken: examined
                .permit_owners
                .items
                .iter()
                .map(|(_, permits)| permits)
                .sum(),
        }),
        _ => None,
    }
}

/// How many listen to the messages of a key. Where nothing lives, somebody may still listen to any of the channels.
fn listening(listeners: &Listeners, primitive: Primitive, waiters: &[WaiterReport]) -> u64 {
    let Listeners {
        lock,
        read_write,
        semaphore,
        latch,
    } = *listeners;
    match primitive {
        Primitive::Lock | Primitive::FencedLock => lock,
        Primitive::FairLock => {
            // Each of them listens to a channel of its own.
            let mut clients: Vec<_> = waiters.iter().map(WaiterReport::client_id).collect();
            clients.sort_unstable();
            clients.dedup();
            lock + clients.len() as u64
        }
        Primitive::ReadLock | Primitive::WriteLock => read_write,
        Primitive::Semaphore | Primitive::ExpirableSemaphore => semaphore,
        Primitive::CountDownLatch => latch,
        Primitive::Nothing | Primitive::Number => lock + read_write + semaphore + latch,
        Primitive::OtherData | Primitive::Unreadable => 0,
    }
}
