//! A cluster of two nodes that give prepared answers, and never end a redirect.

#![allow(
    clippy::unwrap_used,
    reason = "a broken harness must fail the test at once"
)]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use distlock::Client;
use distlock::test_util::{Answer, Verbs};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use uuid::Uuid;

/// How long the client waits for an answer.
const PATIENCE: Duration = Duration::from_millis(100);

/// After this, something never ends.
const FOREVER: Duration = Duration::from_secs(30);

/// More than eight redirects and the pauses within the client's patience lead to, each by digest and by source.
const MOST_COMMANDS: usize = 64;

/// What both nodes answer to commands with keys.
struct Script {
    /// Begins again when it is over.
    lines: Vec<String>,
    answered: usize,
    last: String,
}

/// Both nodes answer the lines of a text, one to each command with keys, whichever of them gets it, and begin again
/// after the last one. `{a}` and `{b}` stand for the ports of the nodes. To the command after `ASKING`, a line that begins
/// with a `!` is the answer to both. An empty line closes the connection.
///
/// # Panics
/// If an attempt never ends, goes from node to node for too long, or is granted by a refusal. Also if the client does not
/// recover when the nodes answer as they should.
pub fn attempt_at_hostile_nodes(text: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(attempt(&String::from_utf8_lossy(text)));
}

async fn attempt(text: &str) {
    let listeners = [listener().await, listener().await];
    let ports = [0, 1].map(|at: usize| listeners[at].local_addr().unwrap().port());
    let script = Arc::new(Mutex::new(Script::honest()));
    for listener in listeners {
        tokio::spawn(serve(listener, ports, Arc::clone(&script)));
    }
    let builder = Client::builder().response_timeout(PATIENCE);
    let url = format!("redis+cluster://127.0.0.1:{}", ports[0]);
    // On a busy machine, a node may need longer than the client's patience.
    let connected = timeout(FOREVER, async {
        loop {
            if let Ok(client) = builder.clone().connect(&url).await {
                return client;
            }
        }
    });
    let client = connected
        .await
        .expect("a connection to nodes that are honest");
    let verbs = Verbs::new(&client, Uuid::nil());
    let lease = Duration::from_secs(10);

    *script.lock() = Script::of(text, ports);
    let attempted = timeout(FOREVER, verbs.attempt("k", 1, lease)).await;
    let attempted = attempted.unwrap_or_else(|_| panic!("the attempt never ends"));
    let (answered, last) = {
        let script = script.lock();
        (script.answered, script.last.clone())
    };
    assert!(
        answered <= MOST_COMMANDS,
        "{answered} commands for one attempt"
    );
    if let Ok(Answer::Granted) = attempted {
        assert!(!last.starts_with('-'), "granted by {last:?}");
    }

    *script.lock() = Script::honest();
    let again = timeout(FOREVER, async {
        while !matches!(verbs.attempt("k", 2, lease).await, Ok(Answer::Granted)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    again
        .await
        .unwrap_or_else(|_| panic!("no grant from nodes that are honest again"));
}

async fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()
}

impl Script {
    /// Everything is granted.
    fn honest() -> Self {
        Self {
            lines: vec!["_".to_owned()],
            answered: 0,
            last: String::new(),
        }
    }

    fn of(text: &str, ports: [u16; 2]) -> Self {
        let text = text
            .replace("{a}", &ports[0].to_string())
            .replace("{b}", &ports[1].to_string());
        Self {
            lines: text.split('\n').map(|line| at_home(line, ports)).collect(),
            ..Self::honest()
        }
    }

    /// The line for the next command.
    fn next(&mut self) -> String {
        let line = self.lines[self.answered % self.lines.len()].clone();
        self.answered += 1;
        line
    }
}

/// The same line, unless it leads to a server that is not one of the nodes. The input of a test must not connect elsewhere.
fn at_home(line: &str, ports: [u16; 2]) -> String {
    if !line.trim_start_matches('!').starts_with('-') {
        return line.to_owned();
    }
    let words = line.split(' ').map(|word| {
        let Some((host, port)) = word.rsplit_once(':') else {
            return word;
        };
        let is_of_host = |c: char| c.is_ascii_alphanumeric() || "-._:%[]".contains(c);
        let is_nobody = !host.chars().all(is_of_host);
        let is_home = ["", "?", "127.0.0.1"].contains(&host);
        match port.parse::<u16>() {
            Err(_) | Ok(0) => word,
            Ok(port) if ports.contains(&port) && (is_nobody || is_home) => word,
            Ok(_) => "elsewhere:0",
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Answers the connections to a node.
async fn serve(listener: TcpListener, ports: [u16; 2], script: Arc<Mutex<Script>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream, ports, Arc::clone(&script)));
    }
}

async fn answer(mut stream: TcpStream, ports: [u16; 2], script: Arc<Mutex<Script>>) {
    // The two answers to a command after `ASKING` would else be 40 ms apart.
    stream.set_nodelay(true).unwrap();
    let (mut read, mut asking) = (Vec::new(), None);
    loop {
        while let Some((words, length)) = command(&read) {
            read.drain(..length);
            let keys = words.get(2).map(String::as_str);
            let reply = match (words[0].to_ascii_uppercase().as_str(), keys) {
                ("HELLO", _) => "%2\r\n+mode\r\n+cluster\r\n+role\r\n+master".to_owned(),
                ("CLUSTER", _) => map(ports[0]),
                // Which commands there are.
                ("EVAL", Some("0")) => "*0".to_owned(),
                ("INFO", _) => "+".to_owned(),
                ("ASKING", _) => {
                    let line = script.lock().next();
                    let answers_both = line.starts_with('!');
                    let line = line.trim_start_matches('!').to_owned();
                    asking = Some(line.clone());
                    if answers_both { line } else { "+OK".to_owned() }
                }
                ("EVAL" | "EVALSHA", _) => {
                    let mut script = script.lock();
                    let line = asking.take().unwrap_or_else(|| script.next());
                    let line = line.trim_start_matches('!').to_owned();
                    script.last.clone_from(&line);
                    line
                }
                _ => "+OK".to_owned(),
            };
            let reply = format!("{reply}\r\n");
            if reply == "\r\n" || stream.write_all(reply.as_bytes()).await.is_err() {
                return;
            }
        }
        match stream.read_buf(&mut read).await {
            Ok(1..) => {}
            _ => return,
        }
    }
}

/// The map of a cluster in which the node with this port has all slots.
fn map(port: u16) -> String {
    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n+127.0.0.1\r\n:{port}\r\n+id")
}

/// The words of the first command, and its length; `None` if it is not complete yet.
fn command(read: &[u8]) -> Option<(Vec<String>, usize)> {
    let line = |from: usize| {
        let rest = read.get(from..)?;
        let length = rest.windows(2).position(|two| two == b"\r\n")?;
        let number = std::str::from_utf8(&rest[1..length]).ok()?;
        Some((number.parse::<usize>().ok()?, from + length + 2))
    };
    let (count, mut at) = line(0)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (length, begin) = line(at)?;
        let word = read.get(begin..begin + length)?;
        read.get(begin + length + 1)?;
        words.push(String::from_utf8_lossy(word).into_owned());
        at = begin + length + 2;
    }
    Some((words, at))
}
