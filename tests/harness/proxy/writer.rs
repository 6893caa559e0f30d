//! The sending end of a lane: asks the rules before each piece, and springs the traps.
//!
//! # Invariants
//! 1. A fault that is set or lifted takes effect at the next piece, also on what waits already.
//! 2. A message is counted once by a flow, in however many pieces it goes.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::connection::Caught;
use super::frame::{Frame, Side};
use super::lane::{Ending, Lane, Parcel};
use super::rules::{FlowRule, Then};
use super::select::Flow;

/// Number of pieces in a second in which a throttled direction sends.
const THROTTLE_STEPS: u32 = 100;

/// The sending end of a lane.
pub(super) struct Writer<'a> {
    lane: Lane<'a>,
    output: OwnedWriteHalf,
    // When a throttled direction may send again.
    idle_from: Instant,
}

impl<'a> Writer<'a> {
    pub(super) fn new(lane: Lane<'a>, output: OwnedWriteHalf) -> Self {
        Self {
            lane,
            output,
            idle_from: Instant::now(),
        }
    }

    /// Sends until the end, and ends that side of its socket.
    pub(super) async fn run(mut self, mut parcels: mpsc::Receiver<Parcel>) {
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
                return Leave::FREE;
            };
            passage.count(&rule);
            let (at, leave) = match rule.flow {
                Flow::Pass => return Leave::FREE,
                Flow::Rechunk(piece) => return Leave::in_pieces(piece),
                Flow::Throttle(rate) => (Some(self.idle_from), Leave::at_rate(rate)),
                Flow::Delay(delay) => (passage.came.checked_add(delay), Leave::FREE),
                Flow::Stall => (None, Leave::FREE),
            };
            if is_time(at, change.changed()).await {
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

impl Leave {
    const FREE: Self = Self {
        piece: usize::MAX,
        rate: None,
    };

    fn in_pieces(piece: usize) -> Self {
        Self {
            piece: piece.max(1),
            rate: None,
        }
    }

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

/// Waits for a time, or for ever; false if `change` came first.
async fn is_time(at: Option<Instant>, change: impl Future) -> bool {
    match at {
        Some(at) => timeout_at(at, change).await.is_err(),
        None => {
            change.await;
            false
        }
    }
}
