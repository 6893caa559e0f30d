//! How a link makes a connection, and what it remembers of the tries.

use std::sync::Arc;
use std::time::Duration;

use redis::AsyncConnectionConfig;
use tokio::time::{Instant, timeout};

use super::config::{LinkConfig, OnPush};
use super::together::Member;
use crate::backend::Fault;
use crate::backend::redis::connection::addresses::{Address, Endpoint, first_of, in_common_order};
use crate::backend::redis::connection::connect::rejection::{connect_or_reason, rejection};
use crate::backend::redis::connection::connect::{Driven, Expected, Step, handshake, info};
use crate::config::{GOODBYE_AGAIN_AFTER, NEXT_ADDRESS_AFTER, PIPELINE_BUFFER};
use crate::sync::{Changes, Mutex};

/// An established connection.
#[derive(Clone)]
pub(crate) struct Connected {
    pub(crate) connection: Driven,
    pub(crate) epoch: u64,
    /// When it was established.
    pub(super) since: Instant,
    /// When the server may grant, if it was started only recently.
    pub(super) grants_from: Option<Instant>,
}

/// The tries of a link to connect.
#[derive(Default)]
pub(super) struct Opening {
    /// What the present try waits for.
    step: Mutex<Step>,
    /// Where the present try connects to, and since when.
    begun: Mutex<Vec<(Endpoint, Instant)>>,
    /// When the server was last asked why it had ended a connection, and what it said.
    goodbye: Mutex<Option<(Instant, Endpoint, Option<Fault>)>>,
}

/// For which link a connection is made.
#[derive(Clone, Copy)]
pub(super) struct For<'a> {
    pub(super) config: &'a LinkConfig,
    /// The link, among the connections to the same server.
    pub(super) member: &'a dyn Member,
    /// Gets what the server sends unrequested.
    pub(super) on_push: &'a OnPush,
    /// The server is elsewhere now, or is back.
    pub(super) elsewhere: &'a Changes,
}

impl Opening {
    /// What the present try has not finished within this time.
    pub(super) fn unfinished(&self, within: Duration) -> Fault {
        self.step.lock().unfinished(within)
    }

    /// Whether the present try connects to this endpoint, and has begun a moment ago. An older one may never be answered.
    pub(super) fn has_just_begun_at(&self, endpoint: &Endpoint) -> bool {
        let begun = self.begun.lock();
        let mut there = begun.iter().filter(|(to, _)| to == endpoint);
        there.any(|(_, since)| since.elapsed() < NEXT_ADDRESS_AFTER)
    }

    /// There is a connection: what the server said at the end of an earlier one does not count any more.
    pub(super) fn succeeded(&self) {
        *self.goodbye.lock() = None;
    }

    /// Connects once, within the time that the client sets for that. If the server moves meanwhile, it begins again.
    pub(super) async fn connect(&self, link: For<'_>) -> Result<(Connected, Endpoint), Fault> {
        let within = link.config.connector.timeout();
        loop {
            let connected = timeout(within, self.establish(link)).await;
            self.begun.lock().clear();
            match connected {
                Ok(Ok(Some(connected))) => return Ok(connected),
                Ok(Ok(None)) => {}
                Ok(Err(fault)) => return Err(fault),
                Err(_) => return Err(self.unfinished(within)),
            }
        }
    }

    /// Connects to the server, where it is at the moment, and checks that it is the server that is expected. `None`: the server is
    /// elsewhere by now.
    async fn establish(&self, link: For<'_>) -> Result<Option<(Connected, Endpoint)>, Fault> {
        let config = link.config;
        *self.step.lock() = Step::Connection;
        let address = config.server.locate().await?;
        // From here on: a search announces what it finds itself.
        let moved = link.elsewhere.next();
        tokio::select! {
            // In this order: a connection that was made is taken, and left again if it leads to the wrong server.
            biased;
            connected = self.establish_to(link, address) => connected.map(Some),
            () = moved => Ok(None),
        }
    }

    /// Connects to the server at this address.
    async fn establish_to(
        &self,
        link: For<'_>,
        address: Address,
    ) -> Result<(Connected, Endpoint), Fault> {
        let config = link.config;
        *self.step.lock() = Step::LookUp(address.clone());
        let mut endpoints = config.connector.endpoints(&address).await?;
        if config.expected == Expected::Server {
            // A name may stand for several masters. Then programs lock on the same one.
            endpoints = in_common_order(endpoints);
        }
        let endpoints = config.together.order(link.member, endpoints);
        first_of(endpoints, |endpoint| self.establish_at(link, endpoint)).await
    }

    /// Connects to one of the addresses that the name of the server stands for.
    async fn establish_at(
        &self,
        link: For<'_>,
        endpoint: Endpoint,
    ) -> Result<(Connected, Endpoint), Fault> {
        let config = link.config;
        let connector = &config.connector;
        self.begun.lock().push((endpoint.clone(), Instant::now()));
        let dial = connector.dial(&endpoint, config.nodelay, &self.step);
        let dial = dial.await?;
        let epoch = config.epochs.next();
        let connecting = dial.connect(config_of_driver(link, epoch));
        let ask = || self.rejection(config, &endpoint);
        let has_tls = connector.has_tls();
        let connecting = connect_or_reason(connecting, &endpoint, has_tls, ask);
        let mut connection = connecting.await?;
        let server = endpoint.address.to_string();
        let own_name = connector.client_name();
        handshake::check(&server, config.expected, own_name, &mut connection).await?;
        if let Some(check) = &config.check {
            check.check(&endpoint, &mut connection).await?;
        }
        let connected = Connected {
            grants_from: grants_from(config, &mut connection).await?,
            connection,
            epoch,
            since: Instant::now(),
        };
        Ok((connected, endpoint))
    }

    /// What the server says that ended the last connection. It is asked now and then only, because asking takes another
    /// connection.
    async fn rejection(&self, config: &LinkConfig, endpoint: &Endpoint) -> Option<Fault> {
        let now = Instant::now();
        // This try has failed.
        self.begun.lock().retain(|(to, _)| to != endpoint);
        let last = self.goodbye.lock().clone();
        if let Some((at, asked, fault)) = last
            && asked == *endpoint
            && now.duration_since(at) < GOODBYE_AGAIN_AFTER
        {
            return fault;
        }
        let has_tls = config.connector.has_tls();
        let expected = config.expected;
        let fault = rejection(endpoint, has_tls, expected).await;
        *self.goodbye.lock() = Some((now, endpoint.clone(), fault.clone()));
        fault
    }
}

fn config_of_driver(link: For<'_>, epoch: u64) -> AsyncConnectionConfig {
    let on_push = Arc::clone(link.on_push);
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(link.config.connector.timeout()))
        // Off: the response timeout is applied and counted by the callers.
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE_BUFFER)
        .set_push_sender(move |push| {
            on_push(epoch, push);
            Ok::<(), ()>(())
        })
}

/// When the server at the end of a new connection may grant, if it was started only recently.
async fn grants_from(
    config: &LinkConfig,
    connection: &mut Driven,
) -> Result<Option<Instant>, Fault> {
    let grace = config.restart_grace;
    if grace.is_zero() {
        return Ok(None);
    }
    let left = grace.saturating_sub(info::uptime(connection).await?);
    // From now on, and not from the question: the server may have taken that much later.
    // A rule of tests/model: grace_counts_from_the_answer.
    Ok((!left.is_zero()).then(|| Instant::now() + left))
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn try_has_just_begun_only_for_a_moment_and_where_it_leads() {
        let [here, elsewhere] = ["here", "elsewhere"].map(|path| Endpoint {
            address: Address::Unix(path.into()),
            mapped: None,
            at: None,
        });
        let opening = Opening::default();
        assert!(!opening.has_just_begun_at(&here));
        opening.begun.lock().push((here.clone(), Instant::now()));
        assert!(opening.has_just_begun_at(&here) && !opening.has_just_begun_at(&elsewhere));
        advance(NEXT_ADDRESS_AFTER).await;
        assert!(!opening.has_just_begun_at(&here));
    }
}
