//! Looks at one key in the server: which primitive lives there, and who holds it or waits for it.

pub(crate) mod scan;

use std::collections::HashMap;
use std::fmt::Display;

use uuid::Uuid;

use super::Client;
use crate::backend::Fault;
use crate::backend::reports::{ClientReport, HolderReport, KeyReport, Primitive, WaiterReport};
use crate::error::Error;
use crate::resource::key::Key;
use crate::session::Session;

/// The right without which the names of clients are unknown.
const NAMES: &str = "+client|list";

impl Client {
    /// Looks at one key in the server: which primitive lives there, of this crate or of Redisson, who holds it and for how long,
    /// who waits, and which clients they are.
    ///
    /// A key that is free, or that belongs to another program, is reported as such, without an error. The method changes nothing.
    /// It runs one script on the server, and `CLIENT LIST` if somebody holds the key or waits for it.
    ///
    /// The user needs rights that locks do not need; the page [`least_privilege`](crate::guide::least_privilege) of the guide
    /// lists them. Without the optional rights, the report is incomplete and says [what is missing](KeyReport::missing_rights).
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
        let session = &self.session();
        session.tend_tasks();
        let key = Key::new(&session.config.key_prefix, &key.into())?;
        let since = session.now();
        let failed = |fault: Fault| fault.into_error(&key, session.now().since(since));
        let mut report = examine(session, &key).await.map_err(failed)?;
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
    /// Asks the server of a key for the names of the clients in its reports, unless all are known. A client without a name at any
    /// server is not looked up again.
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
            Err(Fault::Denied(..)) => {
                self.are_denied = true;
                return Ok(());
            }
            Err(fault) => return Err(fault),
        };
        // Also those without a name, so that they are not asked for again.
        self.known.extend(unknown.into_iter().map(|id| (id, None)));
        for client in named {
            session.names.saw(client.id, &client.name);
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
pub(super) async fn examine(session: &Session, key: &Key) -> Result<KeyReport, Fault> {
    let mut report = session.backend.examine(key).await?;
    // The count of a semaphore's owner is its permits, which do not change after the grant.
    if report.primitive != Primitive::Semaphore {
        for holder in &mut report.holders {
            let own = session.own_count(&holder.owner);
            holder.count = own.map_or(holder.count, u64::from);
        }
    }
    Ok(report)
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
