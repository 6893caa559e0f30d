//! How connections are made, whichever server they lead to: TLS and the login.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use redis::{ProtocolVersion, RedisConnectionInfo};

use super::step::Step;
use super::tls::TlsConnector;
use super::transport::Dial;
use crate::backend::redis::connection::addresses::{
    Address, Endpoint, Resolver, url::Tls, without_look_up,
};
use crate::backend::{Fault, cause};
use crate::config::Config;
use crate::config::address_map::AddressMap;
use crate::config::credentials::{Credentials, CredentialsSource};
use crate::error::Error;
use crate::resource::identity::Identity;
use crate::sync::Mutex;

#[derive(Clone, Debug)]
pub(crate) struct Connector {
    db: u32,
    credentials: Option<CredentialsSource>,
    /// Whose connections they are.
    identity: Arc<Identity>,
    /// What the server is to call each connection.
    client_name: String,
    tls: Option<Arc<TlsConnector>>,
    resolver: Arc<Resolver>,
    /// Where announced addresses are reached.
    map: Option<AddressMap>,
    /// The addresses that the user has written, which are used as they are.
    written: Vec<Address>,
    /// How long a connection may take, TLS and login included.
    timeout: Duration,
    /// How often a function is asked again for the credentials of open connections; zero is never.
    credentials_interval: Duration,
}

impl Connector {
    /// Connections to this database. The certificates are checked here, before anything is sent.
    pub(crate) fn new(
        db: u32,
        credentials: Option<CredentialsSource>,
        identity: Arc<Identity>,
        client_name: String,
        tls: Tls,
        config: &Config,
    ) -> Result<Self, Error> {
        let tls = tls_connector(tls, config)?;
        Ok(Self {
            db,
            credentials,
            identity,
            client_name,
            tls,
            resolver: Resolver::new(config.look_up.clone()),
            map: None,
            written: Vec::new(),
            timeout: config.connect_timeout,
            credentials_interval: config.credentials_interval,
        })
    }

    /// Connections to the Sentinels of these servers, with a separate login and with or without TLS. The system's authorities
    /// are not read for them once more.
    pub(crate) fn for_sentinels(
        &self,
        credentials: Option<CredentialsSource>,
        tls: Tls,
        config: &Config,
    ) -> Result<Self, Error> {
        let tls = match (tls, &self.tls) {
            (Tls::Off, _) => None,
            // A URL says for both whether certificates are checked.
            (_, Some(of_servers)) => Some(Arc::clone(of_servers)),
            (tls, None) => tls_connector(tls, config)?,
        };
        Ok(Self {
            db: 0,
            credentials,
            tls,
            resolver: Resolver::new(config.look_up.clone()),
            ..self.clone()
        })
    }

    /// Connects by this map to all addresses but these, which the user has written.
    pub(crate) fn mapping(mut self, map: &Option<AddressMap>, written: &[Address]) -> Self {
        self.map = map.clone();
        self.written = written.to_vec();
        self
    }

    /// What the server is to call each connection.
    pub(crate) fn client_name(&self) -> &str {
        &self.client_name
    }

    /// Refuses what is sent in a copy of the client's process, or under a former identity of the client. The sockets are the
    /// original's: it would get the answers.
    pub(crate) fn check_identity(&self) -> Result<(), Fault> {
        if self.identity.is_valid() {
            Ok(())
        } else {
            Err(Fault::NotNow(cause(
                "nothing is sent any more for an identity that the client had before: its process was copied, or the client \
                 has another identity",
            )))
        }
    }

    pub(crate) fn resolver(&self) -> &Arc<Resolver> {
        &self.resolver
    }

    /// How long a connection may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether connections are encrypted.
    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Where tries to connect to a server lead.
    pub(crate) async fn endpoints(&self, address: &Address) -> Result<Vec<Endpoint>, Fault> {
        let mapped = self.mapped(address)?;
        let endpoint = |at| Endpoint {
            address: address.clone(),
            mapped: mapped.clone(),
            at,
        };
        match mapped.as_ref().unwrap_or(address) {
            Address::Unix(_) => Ok(vec![endpoint(None)]),
            Address::Tcp { host, port } => {
                let found = self.resolver.addresses(host, *port).await?;
                Ok(found.into_iter().map(|at| endpoint(Some(at))).collect())
            }
        }
    }

    /// Looks up where the name of a server leads now. `None` if it has none.
    pub(crate) async fn look_up(&self, server: &Address) -> Option<Result<Vec<SocketAddr>, Fault>> {
        match server {
            Address::Tcp { host, port } if without_look_up(host, *port).is_none() => {
                Some(self.resolver.look_up(host, *port).await)
            }
            _ => None,
        }
    }

    /// Where the name of a server has led last, if that is known.
    pub(crate) fn last_addresses(&self, server: &Address) -> Vec<SocketAddr> {
        match server {
            Address::Tcp { host, port } => self.resolver.last(host, *port),
            Address::Unix(_) => Vec::new(),
        }
    }

    /// The address to connect to instead of this one.
    fn mapped(&self, address: &Address) -> Result<Option<Address>, Fault> {
        let (Address::Tcp { host, port }, Some(map)) = (address, &self.map) else {
            return Ok(None);
        };
        // Used as it is: the map is for addresses that servers announce.
        if self.written.contains(address) {
            return Ok(None);
        }
        let reached = map.reached(host, *port);
        let reached = reached.map_err(|error| {
            let text = format!("it is not known where {address} is reached: {error}");
            Fault::NotNow(cause(text))
        })?;
        let reached = reached.map(|(host, port)| Address::Tcp { host, port });
        // Mapped to itself is not mapped, so that errors name the address once.
        Ok(reached.filter(|reached| reached != address))
    }

    /// What a connection to a server needs: the credentials and certificates of this moment. Without `nodelay`, small commands
    /// may wait for others. `step` has what this waits for.
    pub(crate) async fn dial(
        &self,
        endpoint: &Endpoint,
        nodelay: bool,
        step: &Mutex<Step>,
    ) -> Result<Dial, Fault> {
        // Before the first packet: a copy of the process has copies of all that is needed to connect.
        self.check_identity()?;
        if matches!(self.credentials, Some(CredentialsSource::Asked(_))) {
            *step.lock() = Step::Credentials;
        }
        // For each connection: passwords are rotated, and certificates below as well.
        let login = self.login().await?;
        let tls = match (&self.tls, &endpoint.address) {
            (Some(tls), Address::Tcp { .. }) => {
                *step.lock() = Step::Certificates;
                Some(tls.prepare().await?)
            }
            _ => None,
        };
        *step.lock() = Step::Connection;
        Ok(Dial {
            endpoint: endpoint.clone(),
            nodelay,
            login,
            tls,
        })
    }

    /// How often open connections log in again, if a function gives the credentials.
    pub(crate) fn login_interval(&self) -> Option<Duration> {
        let is_asked = matches!(self.credentials, Some(CredentialsSource::Asked(_)));
        (is_asked && !self.credentials_interval.is_zero()).then_some(self.credentials_interval)
    }

    /// The credentials of this moment.
    pub(crate) async fn credentials(&self) -> Result<Option<Credentials>, Fault> {
        let Some(source) = &self.credentials else {
            return Ok(None);
        };
        let credentials = source.get().await;
        credentials.map(Some).map_err(|error| {
            Fault::NotNow(cause(format!("no credentials for the connection: {error}")))
        })
    }

    async fn login(&self) -> Result<RedisConnectionInfo, Fault> {
        // Protocol 3: the driver reports a lost connection at once, and a connection with subscriptions still answers
        // PING.
        let login = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_db(i64::from(self.db));
        let Some(credentials) = self.credentials().await? else {
            return Ok(login);
        };
        let login = login.set_password(credentials.password());
        Ok(match credentials.user() {
            Some(user) => login.set_username(user),
            None => login,
        })
    }
}

fn tls_connector(tls: Tls, config: &Config) -> Result<Option<Arc<TlsConnector>>, Error> {
    let insecure = match tls {
        Tls::Off => return Ok(None),
        Tls::Verified => false,
        Tls::Insecure => true,
    };
    Ok(Some(Arc::new(TlsConnector::new(insecure, config)?)))
}
