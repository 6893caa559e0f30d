//! A client of HTTP with a limited number of connections.

use std::net::SocketAddr;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::HOST;
use axum::http::{Request, StatusCode};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::Failure;

/// Each connection takes two open files, since the shop is in the same process, and some systems allow a process only 256.
const MOST_CONNECTIONS: usize = 100;

/// A client of one server.
pub(crate) struct Http {
    server: SocketAddr,
    turns: Semaphore,
    idle: Mutex<Vec<SendRequest<Body>>>,
}

impl Http {
    pub(crate) fn new(server: SocketAddr) -> Self {
        Self {
            server,
            turns: Semaphore::new(MOST_CONNECTIONS),
            idle: Mutex::default(),
        }
    }

    /// Sends a POST request without a body, and reads its answer.
    pub(crate) async fn post(&self, path: &str) -> Result<(StatusCode, Bytes), Failure> {
        let _turn = self.turns.acquire().await?;
        let idle = self.idle.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        connection.ready().await?;
        let request = Request::post(path).header(HOST, self.server.to_string());
        let answer = connection
            .send_request(request.body(Body::empty())?)
            .await?;
        let status = answer.status();
        // The connection is free for the next request after the last byte of this answer.
        let body = to_bytes(Body::new(answer.into_body()), usize::MAX).await?;
        self.idle.lock().push(connection);
        Ok((status, body))
    }

    async fn connect(&self) -> Result<SendRequest<Body>, Failure> {
        let stream = TcpStream::connect(self.server).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}
