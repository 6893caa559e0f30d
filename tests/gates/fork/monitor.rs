//! All commands that a server carries out, and over which connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Collects the commands of a server.
#[derive(Clone, Default)]
pub(crate) struct Monitor(Arc<Mutex<Vec<String>>>);

impl Monitor {
    /// Collects from here on, in the caller's runtime.
    pub(crate) async fn of(server: SocketAddr) -> Self {
        let (monitor, stream) = (Self::default(), TcpStream::connect(server).await.unwrap());
        let mut stream = BufReader::new(stream);
        stream.write_all(b"MONITOR\r\n").await.unwrap();
        let mut first = String::new();
        let _bytes = stream.read_line(&mut first).await.unwrap();
        assert_eq!(first.trim_end(), "+OK");
        let lines = monitor.clone();
        tokio::spawn(async move {
            let mut all = stream.lines();
            while let Ok(Some(line)) = all.next_line().await {
                lines.0.lock().unwrap().push(line);
            }
        });
        monitor
    }

    /// The commands so far. Those of scripts are left out.
    pub(crate) fn commands(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let commands = lines.iter().filter(|line| !line.contains(" lua] "));
        commands.cloned().collect()
    }
}

/// The connections that the server lists under the id of a client: each with its number and its address.
pub(crate) fn connections(list: &str, client: &str) -> Vec<(u64, String)> {
    let field = |line: &str, name: &str| {
        let fields = line.split(' ').find_map(|field| field.strip_prefix(name));
        fields.unwrap_or_default().to_owned()
    };
    let of_client = list
        .lines()
        .filter(|line| field(line, "name=").ends_with(client));
    let mut found: Vec<_> = of_client
        .map(|line| (field(line, "id=").parse().unwrap(), field(line, "addr=")))
        .collect();
    found.sort();
    found
}
