//! Logs in again over open connections, for credentials that expire.

use std::borrow::Cow;

use redis::{RedisError, cmd};
use tokio::time::{sleep, timeout};

use crate::backend::redis::connection::connect::{Connector, Driven, Step};
use crate::config::credentials::Credentials;
use crate::telemetry;

/// Asks for the credentials at intervals, and sends those that have changed over the connection. Never completes: it is dropped
/// with the connection.
///
/// A refusal is logged. The server keeps the right that the connection has then.
pub(crate) async fn keep_logged_in(
    what: &'static str,
    server: &str,
    connector: &Connector,
    connection: impl Fn() -> Option<Driven>,
) {
    let Some(interval) = connector.login_interval() else {
        return std::future::pending().await;
    };
    // It is not known which credentials the connection was made with, so the first ones are sent in any case.
    let mut sent = None;
    loop {
        sleep(interval).await;
        let patience = connector.timeout();
        let asked = timeout(patience, connector.credentials()).await;
        let asked = asked.unwrap_or_else(|_| Err(Step::Credentials.unfinished(patience)));
        let credentials = match asked {
            Ok(credentials) => credentials,
            Err(fault) => {
                telemetry::login_not_renewed(server, what, &fault.why());
                // The connection keeps its login. The source is asked again after the next interval.
                continue;
            }
        };
        if credentials.is_none() || credentials == sent {
            continue;
        }
        // Only now: a connection that is kept would not be closed when the client is dropped.
        let (Some(mut connection), Some(new)) = (connection(), &credentials) else {
            continue;
        };
        match timeout(patience, log_in(&mut connection, new)).await {
            Ok(Ok(())) => {
                telemetry::login_renewed(server, what);
                sent = credentials;
            }
            Ok(Err(refused)) => {
                telemetry::login_not_renewed(server, what, &without_secret(&refused, new))
            }
            Err(late) => telemetry::login_not_renewed(server, what, &late),
        }
    }
}

async fn log_in(connection: &mut Driven, credentials: &Credentials) -> redis::RedisResult<()> {
    let mut auth = cmd("AUTH");
    if let Some(user) = credentials.user() {
        auth.arg(user);
    }
    auth.arg(credentials.password());
    auth.query_async(connection).await
}

/// What the server said, without the password. A server quotes the arguments of a command that it does not know, and cuts long ones.
fn without_secret(refused: &RedisError, credentials: &Credentials) -> Cow<'static, str> {
    let text = refused.to_string();
    let quotes = text.to_lowercase().contains("unknown command")
        || !credentials.password().is_empty() && text.contains(credentials.password());
    if quotes {
        "the server does not accept the command AUTH".into()
    } else {
        text.into()
    }
}
