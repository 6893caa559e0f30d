//! What a server says that turns a connection away, asked over a separate connection.

use std::io;
use std::path::Path;

use redis::{RedisError, RedisResult};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::driven::Driven;
use super::handshake::{self, Expected};
use super::tls;
use crate::backend::redis::connection::addresses::{Address, Endpoint};
use crate::backend::{Fault, cause};
use crate::config::{GOODBYE_LENGTH, GOODBYE_TIMEOUT, HANDSHAKE_SILENCE};

/// The head of a message of TLS 1.2 or 1.3 that comes too early, and its one byte. A server that speaks TLS answers with an
/// alert. To another one, the line is not over.
const EARLY_RECORD: [u8; 6] = [0x17, 3, 3, 0, 1, 0];

/// What an alert begins with.
const ALERT: [u8; 2] = [0x15, 3];

const SPEAKS_NO_TLS: &str =
    "it speaks no TLS there; write `redis` and not `rediss` in the URL, or use its port for TLS";

/// Why a server ended a connection that the driver was about to establish, if it says so on a separate connection.
pub(crate) async fn rejection(
    endpoint: &Endpoint,
    has_tls: bool,
    expected: Expected,
) -> Option<Fault> {
    let server = endpoint.address.to_string();
    match (&endpoint.address, endpoint.at) {
        (Address::Unix(path), _) => from_socket(path, server).await,
        (Address::Tcp { .. }, None) => None,
        (Address::Tcp { .. }, Some(at)) => {
            let connecting = TcpStream::connect(at);
            let stream = timeout(GOODBYE_TIMEOUT, connecting).await.ok()?.ok()?;
            if has_tls {
                plain_answer(stream, server, expected).await
            } else {
                goodbye(stream, server).await
            }
        }
    }
}

/// Connects. If the server ends the connection, or leaves the handshake of TLS without an answer, `ask` finds out what the server
/// says to that: its [`rejection`].
pub(crate) async fn connect_or_reason<A>(
    connecting: impl Future<Output = RedisResult<Driven>>,
    endpoint: &Endpoint,
    has_tls: bool,
    ask: impl Fn() -> A,
) -> Result<Driven, Fault>
where
    A: Future<Output = Option<Fault>>,
{
    let connected = tokio::select! {
        connected = connecting => connected,
        // Beside the connection: a server that speaks no TLS may leave the handshake without an answer.
        fault = no_tls_there(has_tls, &ask) => return Err(fault),
    };
    let error = match connected {
        Ok(connection) => return Ok(connection),
        Err(error) => error,
    };
    let fault = if may_be_rejection(&error) || tls::is_no_tls(&error) {
        ask().await
    } else {
        None
    };
    let refused = || handshake::refused(&endpoint.address.to_string(), error);
    Err(fault.unwrap_or_else(refused))
}

/// Completes if a server leaves the handshake of TLS unanswered because it speaks none: it waits for the end of a line.
async fn no_tls_there<A>(has_tls: bool, ask: impl Fn() -> A) -> Fault
where
    A: Future<Output = Option<Fault>>,
{
    if has_tls {
        sleep(HANDSHAKE_SILENCE).await;
        if let Some(fault) = ask().await {
            return fault;
        }
    }
    std::future::pending().await
}

/// Whether the server may have turned a connection away that ended with this error.
fn may_be_rejection(error: &RedisError) -> bool {
    error.is_connection_dropped() && !error.is_connection_refusal()
}

/// What the server says unasked, or with TLS.
///
/// A server that has too many clients says it unasked, and closes the connection. The commands that the driver has sent by
/// then make the system reset the connection, and the driver reports the reset alone. A connection that sends nothing hears
/// what the server says.
async fn goodbye(mut stream: impl AsyncRead + AsyncWrite + Unpin, server: String) -> Option<Fault> {
    let mut line = Vec::new();
    let mut rest = (&mut stream).take(GOODBYE_LENGTH);
    match timeout(GOODBYE_TIMEOUT, rest.read_to_end(&mut line)).await {
        Ok(read) => {
            read.ok()?;
            said(&line)
        }
        // It has a free place by now, and waits for a command. Or it waits for a handshake.
        Err(_) => {
            let answer = answer(stream, &EARLY_RECORD).await?;
            answer.starts_with(&ALERT).then(|| Fault::Unsupported {
                server,
                reason: "it speaks TLS there; write `rediss` and not `redis` in the URL, or use its port without TLS".to_owned(),
            })
        }
    }
}

/// What a server without TLS says to a line.
async fn plain_answer(stream: TcpStream, server: String, expected: Expected) -> Option<Fault> {
    let answer = answer(stream, b"PING\n").await?;
    // What a command gets, also from a user who may not ask.
    let is_plain = answer.starts_with(b"+") || answer.starts_with(b"-");
    is_plain.then(|| Fault::Unsupported {
        server,
        reason: match expected {
            // The port may be none of the URL. Servers before version 7.2 name the plain ports by default.
            Expected::Node => {
                SPEAKS_NO_TLS.to_owned()
                    + "; if the other nodes name that port, set `tls-cluster yes`"
            }
            _ => SPEAKS_NO_TLS.to_owned(),
        },
    })
}

/// The first bytes that come after these were sent.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, sent: &[u8]) -> Option<Vec<u8>> {
    let answer = async {
        stream.write_all(sent).await?;
        let mut first = vec![0; 64];
        let length = stream.read(&mut first).await?;
        first.truncate(length);
        Ok::<_, io::Error>(first)
    };
    timeout(GOODBYE_TIMEOUT, answer).await.ok()?.ok()
}

#[cfg(unix)]
async fn from_socket(path: &Path, server: String) -> Option<Fault> {
    goodbye(tokio::net::UnixStream::connect(path).await.ok()?, server).await
}

#[cfg(not(unix))]
async fn from_socket(_path: &Path, _server: String) -> Option<Fault> {
    None
}

/// What the error that a server sends unasked means.
fn said(line: &[u8]) -> Option<Fault> {
    let line = String::from_utf8_lossy(line);
    let text = line.strip_prefix('-')?.lines().next()?;
    if text.contains("max number of clients") {
        return Some(Fault::NotNow(cause(format!(
            "the server admits no further client ({text}); close connections to it, or raise its `maxclients`; each client \
             of this crate has two connections"
        ))));
    }
    if text.starts_with("DENIED") {
        // The rest of the long text is about all the ways out.
        let short = text.split(". ").next().unwrap_or(text);
        return Some(Fault::LoginDenied(cause(short)));
    }
    Some(Fault::NotNow(cause(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_a_server_sends_unasked_are_told_with_what_to_do() {
        let told = |line: &str| said(line.as_bytes()).map(|fault| fault.to_string());
        let full = told("-ERR max number of clients reached\r\n").unwrap();
        assert!(full.contains("max number of clients reached") && full.contains("`maxclients`"));
        let protected = "-DENIED Redis is running in protected mode because there is no password. In this mode ..\r\n";
        assert_eq!(
            told(protected).unwrap(),
            "login denied: DENIED Redis is running in protected mode because there is no password"
        );
        assert_eq!(told("-ERR odd\r\n").unwrap(), "not executed: ERR odd");
        assert_eq!(told(""), None);
        assert_eq!(told("HTTP/1.1 400 Bad Request\r\n"), None);
    }
}
