//! A short connection that only asks a server what it is.

use redis::AsyncConnectionConfig;
use tokio::time::{sleep, timeout};

use super::address::Address;
use super::connector::Connector;
use super::handshake::{self, Expected};
use super::tls;
use crate::backend::{Fault, cause};
use crate::config::HANDSHAKE_SILENCE;

/// Connects to a server and asks what it is. Fails if it is not what is expected.
///
/// This takes at most half the time of a connection. The caller connects next, and has the rest of that time.
pub(crate) async fn probe(
    connector: &Connector,
    address: &Address,
    expected: Expected,
) -> Result<(), Fault> {
    let patience = connector.timeout() / 2;
    let probed = async {
        let dial = connector.dial(address, true).await?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(patience))
            .set_response_timeout(Some(patience));
        let connected = dial.connect(config);
        let name = address.to_string();
        let connected = tokio::select! {
            connected = connected => connected,
            fault = no_tls_there(connector, address, expected) => return Err(fault),
        };
        let mut connection = match connected {
            Ok(connection) => connection,
            Err(error) => {
                let fault = match handshake::may_be_rejection(&error) || tls::is_no_tls(&error) {
                    true => handshake::rejection(address, connector.has_tls(), expected).await,
                    false => None,
                };
                return Err(fault.unwrap_or_else(|| handshake::refused(&name, error)));
            }
        };
        handshake::check(&name, (expected, connector.client_name()), &mut connection).await
    };
    let none = || Fault::NotNow(cause(format!("no answer within {patience:?}")));
    timeout(patience, probed)
        .await
        .unwrap_or_else(|_| Err(none()))
}

/// Completes if a server leaves the handshake of TLS unanswered because it speaks none.
async fn no_tls_there(connector: &Connector, address: &Address, expected: Expected) -> Fault {
    if connector.has_tls() {
        sleep(HANDSHAKE_SILENCE).await;
        if let Some(fault) = handshake::rejection(address, true, expected).await {
            return fault;
        }
    }
    std::future::pending().await
}
