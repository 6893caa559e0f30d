//! One request of HTTP, for tests that need no client of HTTP otherwise.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The body of the answer to a GET request for a URL such as `http://127.0.0.1:80/metrics`.
///
/// # Panics
/// Panics if the server does not answer with the status 200.
pub async fn get(url: &str) -> String {
    let rest = url.strip_prefix("http://");
    let rest = rest.unwrap_or_else(|| panic!("{url} does not begin with http://"));
    let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut connection = TcpStream::connect(server).await.unwrap();
    // With version 1.0 the server ends the connection after the answer, and sends it in one piece.
    let request = format!("GET /{path} HTTP/1.0\r\nhost: {server}\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1);
    assert_eq!(status, Some("200"), "{url}: {answer}");
    body.to_owned()
}
