//! Starts what its argument names, tells about it in a line, and waits to be killed.
//!
//! Without an argument that is a server, of which it tells port, pid and directory. `sentinel` and
//! `cluster` are those that the tests of a process share, of which it tells all pids.
//!
//! The harness's own tests kill it and look whether the processes survive.

use std::env;
use std::future::pending;

use distlock_tests::{RedisCluster, RedisServer, SentinelSet};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    match env::args().nth(1).as_deref() {
        Some("sentinel") => {
            let set = SentinelSet::shared().await;
            let servers = (0..3).map(|index| set.server(index).pid());
            let sentinels = (0..3).map(|index| set.sentinel(index).pid());
            println!("{:?}", servers.chain(sentinels).collect::<Vec<_>>());
            pending().await
        }
        Some("cluster") => {
            let cluster = RedisCluster::shared().await;
            let nodes = (0..cluster.size()).map(|index| cluster.node(index).pid());
            println!("{:?}", nodes.collect::<Vec<_>>());
            pending().await
        }
        Some(other) => panic!("{other:?} is nothing to start"),
        None => {
            let server = RedisServer::start().await;
            let (port, pid, dir) = (server.port(), server.pid(), server.dir());
            println!("[{port}, {pid}, {dir:?}]");
            pending().await
        }
    }
}
