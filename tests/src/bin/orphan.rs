//! Starts a server, tells its port and pid in a line, and waits to be killed.
//!
//! The harness's own tests kill it and look whether the server survives.

use std::future::pending;

use distlock_tests::RedisServer;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = RedisServer::start().await;
    println!("[{}, {}]", server.port(), server.pid());
    pending::<()>().await;
}
