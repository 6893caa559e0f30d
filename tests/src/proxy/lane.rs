//! The sockets of one connection: a lane for each direction.
//!
//! A lane is a reader that cuts what comes into frames, a queue, and a writer that asks the rules
//! before each piece it sends. The four parts of a connection are one task, which ends when all of
//! them have ended.
//!
//! # Invariants
//! 1. Nothing overtakes within a direction, as on any TCP connection: what is stalled, delayed or
//!    held also holds back what came after it, the end of the stream included.
//! 2. The end of the client does not end the server's side before all that the client had sent
//!    was delivered.
//! 3. A socket is reset when both its halves are dropped after `set_zero_linger`; the write half is
//!    forgotten and not dropped, for its drop would say a polite goodbye first.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::connection::{Caught, Connection};
use super::frame::{Frame, Scanner, Side};
use super::rules::{FlowRule, Place, Then};
use super::select::Flow;

/// Messages that wait in one direction before the sender is held back.
const QUEUE: usize = 1024;

/// Small, so that a throttled reader is soon felt by the server and not hidden by the kernel.
const RECEIVE_BUFFER: u32 = 64 * 1024;

/// Pieces in which a throttled direction sends: so many in a second.
const THROTTLE_STEPS: u32 = 100;

/// What comes out of a reader.
enum Parcel {
    Frame {
        frame: Frame,
        number: Option<u64>,
        came: Instant,
    },
    End {
        ending: Ending,
        came: Instant,
    },
}

/// How a direction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Fin,
    Reset,
}

/// Carries a client's connection until both sides have ended.
pub(super) async fn carry(shared: &Shared, connection: &Arc<Connection>, client: TcpStream) {
    let server = match connect(shared.target()).await {
        Ok(server) => server,
        Err(_) => return reset(client),
    };
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    let up = Lane {
        shared,
        connection,
        from: Side::Client,
    };
    let down = Lane {
        shared,
        connection,
        from: Side::Server,
    };
    tokio::join!(
        up.run(client_in, server_out),
        down.run(server_in, client_out)
    );
}

/// Closes a socket with a reset.
pub(super) fn reset(stream: TcpStream) {
    // An error means that the socket is dead already, which is what is wanted.
    let _ = stream.set_zero_linger();
}

async fn connect(target: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    let server = socket.connect(target).await?;
    server.set_nodelay(true)?;
    Ok(server)
}

/// One direction of a connection.
#[derive(Clone, Copy)]
struct Lane<'a> {
    shared: &'a Shared,
    connection: &'a Arc<Connection>,
    from: Side,
}

impl Lane<'_> {
    async fn run(self, input: OwnedReadHalf, output: OwnedWriteHalf) {
        let (queue, parcels) = mpsc::channel(QUEUE);
        let writer = Writer {
            lane: self,
            output,
            idle_from: Instant::now(),
        };
        tokio::join!(self.read(input, queue), writer.run(parcels));
    }

    fn to(self) -> Side {
        match self.from {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }

    fn place(self) -> Place {
        Place {
            id: self.connection.id(),
            role: self.connection.role(),
            from: self.from,
        }
    }

    async fn read(self, mut input: OwnedReadHalf, queue: mpsc::Sender<Parcel>) {
        let ending = tokio::select! {
            biased;
            () = self.connection.cut_ordered(self.from) => {
                let _ = input.as_ref().set_zero_linger();
                Ending::Fin
            }
            ending = self.read_frames(&mut input, &queue) => ending,
        };
        drop(input);
        if self.from == Side::Server {
            self.connection.no_more_replies();
        }
        let _ = queue
            .send(Parcel::End {
                ending,
                came: Instant::now(),
            })
            .await;
    }

    async fn read_frames(self, input: &mut OwnedReadHalf, queue: &mpsc::Sender<Parcel>) -> Ending {
        let mut scanner = Scanner::new(self.from);
        loop {
            let read = input.read_buf(scanner.buffer()).await;
            while let Some(frame) = scanner.next_frame() {
                let _ = queue.send(self.parcel(frame)).await;
            }
            let ending = match read {
                Ok(0) => Ending::Fin,
                Ok(_) => continue,
                // A server would drop what it has not read yet: see invariant 2.
                Err(_) if self.from == Side::Client => Ending::Fin,
                Err(_) => Ending::Reset,
            };
            if let Some(torn) = scanner.rest() {
                let _ = queue.send(self.parcel(torn)).await;
            }
            return ending;
        }
    }

    fn parcel(self, frame: Frame) -> Parcel {
        let number = match self.from {
            Side::Client => {
                self.connection.learn(&frame);
                None
            }
            Side::Server => self.connection.answer(&frame),
        };
        Parcel::Frame {
            frame,
            number,
            came: Instant::now(),
        }
    }
}

/// A message, or the end of a stream, on its way past the rules.
struct Passage {
    came: Instant,
    is_message: bool,
    // The flow that has counted it. A message in many pieces is one hit.
    counted: Option<u64>,
}

impl Passage {
    fn new(came: Instant, is_message: bool) -> Self {
        Self {
            came,
            is_message,
            counted: None,
        }
    }

    fn count(&mut self, rule: &FlowRule) {
        if self.is_message && self.counted.replace(rule.id) != Some(rule.id) {
            rule.hits.count();
        }
    }
}

/// Leave to send.
struct Leave {
    piece: usize,
    rate: Option<u32>,
}

/// The sending end of a lane.
struct Writer<'a> {
    lane: Lane<'a>,
    output: OwnedWriteHalf,
    // When a throttled direction may send again.
    idle_from: Instant,
}

impl Writer<'_> {
    async fn run(mut self, mut parcels: mpsc::Receiver<Parcel>) {
        let lane = self.lane;
        let ending = tokio::select! {
            biased;
            () = lane.connection.cut_ordered(lane.to()) => Ending::Reset,
            () = lane.connection.fin_ordered(lane.from) => Ending::Fin,
            ending = self.send_all(&mut parcels) => ending,
        };
        match ending {
            Ending::Fin => drop(self.output),
            Ending::Reset => {
                let _ = self.output.as_ref().set_zero_linger();
                self.output.forget();
                // For the other half of this socket, which the other lane reads from.
                lane.connection.cut_side(lane.to());
            }
        }
        // The reader must not wait for room: it still has to see the end of its side.
        while parcels.recv().await.is_some() {}
    }

    async fn send_all(&mut self, parcels: &mut mpsc::Receiver<Parcel>) -> Ending {
        while let Some(parcel) = parcels.recv().await {
            let sent = match parcel {
                Parcel::Frame {
                    frame,
                    number,
                    came,
                } => self.send(frame, number, came).await,
                Parcel::End { ending, came } => {
                    self.leave(&mut Passage::new(came, false)).await;
                    Err(ending)
                }
            };
            if let Err(ending) = sent {
                return ending;
            }
        }
        Ending::Fin
    }

    async fn send(
        &mut self,
        frame: Frame,
        number: Option<u64>,
        came: Instant,
    ) -> Result<(), Ending> {
        let mut passage = Passage::new(came, true);
        self.leave(&mut passage).await;
        match self.lane.from {
            Side::Client => self.spring_traps(&frame).await?,
            Side::Server if number.is_some_and(|n| self.lane.connection.eats(n)) => {
                return Err(self.cut());
            }
            Side::Server => {}
        }
        self.write(frame.bytes, &mut passage).await
    }

    /// Waits until the rules let the message go on.
    async fn leave(&mut self, passage: &mut Passage) -> Leave {
        let shared = self.lane.shared;
        loop {
            // Before the look at the rules, so that no change of them is missed.
            let mut change = shared.changes();
            let Some(rule) = shared.rules().flow(self.lane.place()) else {
                return Leave {
                    piece: usize::MAX,
                    rate: None,
                };
            };
            passage.count(&rule);
            let (at, leave) = match rule.flow {
                Flow::Pass => {
                    return Leave {
                        piece: usize::MAX,
                        rate: None,
                    };
                }
                Flow::Rechunk(piece) => {
                    return Leave {
                        piece: piece.max(1),
                        rate: None,
                    };
                }
                Flow::Throttle(rate) => (self.idle_from, Leave::at_rate(rate)),
                Flow::Delay(delay) => (
                    passage.came + delay,
                    Leave {
                        piece: usize::MAX,
                        rate: None,
                    },
                ),
                Flow::Stall => {
                    let _ = change.changed().await;
                    continue;
                }
            };
            if timeout_at(at, change.changed()).await.is_err() {
                return leave;
            }
        }
    }

    async fn spring_traps(&mut self, request: &Frame) -> Result<(), Ending> {
        let Lane {
            connection, shared, ..
        } = self.lane;
        let number = connection.ask(request);
        let sprung = shared
            .rules()
            .request(self.lane.place(), request, number.is_some());
        for then in sprung {
            match (then, number) {
                (Then::Eat(hits), Some(number)) => connection.eat(number, hits),
                (Then::Eat(_), None) => {}
                (Then::Hold(tell), number) => self.hold(tell, number).await?,
            }
        }
        Ok(())
    }

    /// Hands the request to the test, until that lets it go on or gives it up.
    async fn hold(&self, tell: oneshot::Sender<Caught>, number: Option<u64>) -> Result<(), Ending> {
        let (caught, go) = self.lane.connection.catch();
        let _ = tell.send(caught);
        let Ok(reply) = go.await else {
            return Err(self.cut());
        };
        if let Some(number) = number {
            self.lane.connection.tell(number, reply);
        }
        Ok(())
    }

    async fn write(&mut self, mut bytes: Bytes, passage: &mut Passage) -> Result<(), Ending> {
        while !bytes.is_empty() {
            let leave = self.leave(passage).await;
            let going = bytes.len().min(leave.piece);
            let cut = self.lane.shared.rules().bytes(self.lane.place(), going);
            let piece = bytes.split_to(cut.unwrap_or(going));
            if self.output.write_all(&piece).await.is_err() {
                return Err(self.gone());
            }
            if cut.is_some() {
                return Err(self.cut());
            }
            self.rest_after(piece.len(), leave.rate);
            if !bytes.is_empty() {
                // Gives the other end a chance to read the pieces one by one.
                yield_now().await;
            }
        }
        Ok(())
    }

    fn rest_after(&mut self, bytes: usize, rate: Option<u32>) {
        if let Some(rate) = rate {
            let rest = Duration::from_secs_f64(bytes as f64 / f64::from(rate));
            self.idle_from = self.idle_from.max(Instant::now()) + rest;
        }
    }

    fn cut(&self) -> Ending {
        self.lane.connection.cut();
        Ending::Reset
    }

    /// Nobody is there to be written to. A client learns of it by a reset, as from a dead server;
    /// a server's side goes on (invariant 2).
    fn gone(&self) -> Ending {
        match self.lane.to() {
            Side::Server => self.cut(),
            Side::Client => Ending::Fin,
        }
    }
}

impl Leave {
    fn at_rate(rate: u32) -> Self {
        let rate = rate.max(1);
        let piece = usize::try_from(rate / THROTTLE_STEPS)
            .unwrap_or(usize::MAX)
            .max(1);
        Self {
            piece,
            rate: Some(rate),
        }
    }
}
