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

use tokio::io::AsyncReadExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Shared;
use super::connection::Connection;
use super::frame::{Frame, Scanner, Side};
use super::rules::Place;
use super::select::Role;
use super::writer::Writer;

/// Messages that wait in one direction before the sender is held back.
const QUEUE: usize = 1024;

/// Small, so that a throttled reader is soon felt by the server and not hidden by the kernel.
const RECEIVE_BUFFER: u32 = 64 * 1024;

/// What comes out of a reader.
pub(super) enum Parcel {
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
pub(super) enum Ending {
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
pub(super) struct Lane<'a> {
    pub(super) shared: &'a Shared,
    pub(super) connection: &'a Arc<Connection>,
    pub(super) from: Side,
}

impl Lane<'_> {
    async fn run(self, input: OwnedReadHalf, output: OwnedWriteHalf) {
        let (queue, parcels) = mpsc::channel(QUEUE);
        let writer = Writer::new(self, output);
        tokio::join!(self.read(input, queue), writer.run(parcels));
    }

    pub(super) fn to(self) -> Side {
        match self.from {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }

    pub(super) fn place(self) -> Place {
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
            // A replica gets its copy of the data as bytes, and the lines between them have no end of their own.
            if self.place().role == Role::Replica {
                scanner.pass_through();
            }
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
