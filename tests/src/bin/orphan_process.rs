//! Starts a server, tells its port, pid and directory in a line, and waits to be killed.
//!
//! The harness's own tests kill it and look whether the server survives.

use std::future::pending;

use distlock_tests::RedisServer;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = RedisServer::start().await;
    let (port, pid, dir) = (server.port(), server.pid(), server.dir());
    println!("[{port}, {pid}, {dir:?}]");
    pending::<()>().await;
}
