//! The resource that a lock guards. It sees each entry, and refuses writes that come too late.
//!
//! It is part of the test's process and meets no faults; other processes use it over a socket. Each entry gets a ticket,
//! and a write is accepted only while its key has no later ticket. An owner that wakes up after the end of its lease
//! therefore does no harm, and is noticed.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// One cell for each key.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    cells: Arc<Mutex<HashMap<String, Cell>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    value: u64,
    ticket: u64,
}

/// The right of one entry to write, until the next entry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Counts the entries of a key.
    pub ticket: u64,
    /// The value at the entry.
    pub value: u64,
}

impl Resource {
    fn cell<T>(&self, key: &str, with: impl FnOnce(&mut Cell) -> T) -> T {
        let mut cells = self.cells.lock().unwrap();
        with(cells.entry(key.to_owned()).or_default())
    }

    /// Enters, and reads.
    ///
    /// # Panics
    /// If a thread panicked inside.
    #[must_use]
    pub fn enter(&self, key: &str) -> Entry {
        self.cell(key, |cell| {
            cell.ticket += 1;
            Entry {
                ticket: cell.ticket,
                value: cell.value,
            }
        })
    }

    /// Writes one more than was read. Returns false if another owner has entered since.
    ///
    /// # Panics
    /// If a thread panicked inside.
    #[must_use]
    pub fn write(&self, key: &str, entry: Entry) -> bool {
        self.cell(key, |cell| {
            let accepted = entry.ticket == cell.ticket;
            if accepted {
                cell.value = entry.value + 1;
            }
            accepted
        })
    }

    /// The value of each cell.
    ///
    /// # Panics
    /// If a thread panicked inside.
    #[must_use]
    pub fn values(&self) -> BTreeMap<String, u64> {
        let cells = self.cells.lock().unwrap();
        let values = cells.iter().map(|(key, cell)| (key.clone(), cell.value));
        values.collect()
    }

    /// Answers other processes on a loopback port, until the returned value is dropped.
    ///
    /// # Errors
    /// If no port can be had.
    pub async fn serve(&self) -> io::Result<Served> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        let resource = self.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let resource = resource.clone();
                tokio::spawn(async move { resource.answer(stream).await });
            }
        });
        Ok(Served {
            addr,
            task: task.abort_handle(),
        })
    }

    /// `enter KEY` is answered by `TICKET VALUE`, and `write KEY TICKET VALUE` by `true` or `false`.
    async fn answer(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        while let Some(line) = lines.next_line().await? {
            let words: Vec<&str> = line.split(' ').collect();
            let answer = match words[..] {
                ["enter", key] => {
                    let entry = self.enter(key);
                    format!("{} {}\n", entry.ticket, entry.value)
                }
                ["write", key, ticket, value] => {
                    let number = |text: &str| text.parse().expect("a number");
                    let (ticket, value) = (number(ticket), number(value));
                    format!("{}\n", self.write(key, Entry { ticket, value }))
                }
                _ => panic!("no question to the resource: {line:?}"),
            };
            write.write_all(answer.as_bytes()).await?;
        }
        Ok(())
    }
}

/// Serves the resource until it is dropped.
#[derive(Debug)]
pub struct Served {
    addr: SocketAddr,
    task: AbortHandle,
}

impl Served {
    /// Where it is served.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A task's access to the resource, in its own process or over a socket.
#[derive(Debug)]
pub enum ResourceHandle {
    /// In the same process.
    Local(Resource),
    /// In the process of the test.
    Remote(Connection),
}

/// A connection to the process of the test.
#[derive(Debug)]
pub struct Connection {
    addr: SocketAddr,
    /// Taken while a question is under way. If that is dropped the connection is too, since an answer is still to come.
    stream: Option<BufReader<TcpStream>>,
}

impl ResourceHandle {
    /// A handle to the resource in another process.
    #[must_use]
    pub fn remote(addr: SocketAddr) -> Self {
        let stream = None;
        Self::Remote(Connection { addr, stream })
    }

    /// [`Resource::enter`].
    ///
    /// # Panics
    /// If the tester has gone.
    pub async fn enter(&mut self, key: &str) -> Entry {
        match self {
            Self::Local(resource) => resource.enter(key),
            Self::Remote(line) => {
                let answer = line.ask(format!("enter {key}\n")).await;
                let answer = answer.expect("the tester lives");
                let (ticket, value) = answer.split_once(' ').expect("two numbers");
                let number = |text: &str| text.parse().expect("a number");
                Entry {
                    ticket: number(ticket),
                    value: number(value),
                }
            }
        }
    }

    /// [`Resource::write`].
    ///
    /// # Panics
    /// If the tester has gone.
    pub async fn write(&mut self, key: &str, entry: Entry) -> bool {
        match self {
            Self::Local(resource) => resource.write(key, entry),
            Self::Remote(line) => {
                let Entry { ticket, value } = entry;
                let answer = line.ask(format!("write {key} {ticket} {value}\n")).await;
                answer.expect("the tester lives") == "true"
            }
        }
    }
}

impl Connection {
    async fn ask(&mut self, question: String) -> io::Result<String> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.addr).await?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        let mut answer = String::new();
        stream.write_all(question.as_bytes()).await?;
        stream.read_line(&mut answer).await?;
        self.stream = Some(stream);
        Ok(answer.trim_end().to_owned())
    }
}
