//! What an acquisition has in the server, or may have, while it has no guard yet.
//!
//! A future that was polled and then left notices no grant, and gives none back. So what has to be ended then lies in a cell
//! beside the future while that waits. Once in [`WAITER_CHECK_PAUSE`](crate::config::WAITER_CHECK_PAUSE) the watchdog's task wakes
//! these futures. One that was not polled from one look to the next is absent, and what lies in its cell is ended. If
//! it is polled again later, it starts again with a new owner. The future beside the cell is not polled on: it might send the
//! next command of an attempt whose owner was ended.
//!
//! A future that is ready when it is first polled has no cell, so an attempt in memory costs no more.
//!
//! # Invariants
//! 1. What lies in a cell has one owner: the future and the look both take it out, and one of them gets it.
//! 2. Nobody is woken, and nothing is ended, under a mutex.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pin_project_lite::pin_project;
use slab::Slab;

use super::Session;
use crate::resource::key::Key;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{AtomicWaker, foreign};
use crate::telemetry;

/// What has to be ended if the future beside it is not polled any more.
pub(crate) trait Unguarded: Send + 'static {
    /// Ends it. Returns what the log says of its acquisition, if there is anything to end.
    fn end(self, session: &Arc<Session>) -> Option<AbsentAcquisition>;
}

/// An acquisition that is not polled any more.
pub(crate) struct AbsentAcquisition {
    /// The key, or the first of several.
    pub(crate) key: Key,
    pub(crate) call_site: &'static Location<'static>,
}

/// For how many cells room is kept while there are none.
const SPARE: usize = 64;

/// The cells of one client's futures, by their numbers.
#[derive(Default)]
pub(super) struct Cells(Mutex<Slab<Arc<dyn Look>>>);

/// What the watchdog's task does with a cell.
trait Look: Send + Sync {
    /// Whether the future has given no sign since it was asked for one. Such a cell is asked for nothing any more, and
    /// [`end`](Look::end) is called next. `asks_only`: no future counts as absent.
    fn is_absent(&self, asks_only: bool) -> bool;

    /// Whether the cell was found to be absent.
    fn has_ended(&self) -> bool;

    fn wake(&self);

    /// Ends what lies in the cell, unless the future has it.
    fn end(&self, session: &Arc<Session>) -> Option<AbsentAcquisition>;
}

/// The future was polled since it was last asked for a sign, or was never asked.
const PRESENT: u8 = 0;
const ASKED: u8 = 1;
const ABSENT: u8 = 2;

struct Cell<U> {
    unguarded: Mutex<Option<U>>,
    sign: AtomicU8,
    waker: AtomicWaker,
}

/// A cell, and its number in the list that the watchdog's task looks at.
struct NumberedCell<U> {
    cell: Arc<Cell<U>>,
    number: usize,
}

impl<U> Cell<U> {
    /// Returns whether the future was found to be absent before.
    fn note_poll(&self, waker: &Waker) -> bool {
        // Relaxed, here and below: the mutex of the cell decides who gets what lies in it.
        match self.sign.load(Ordering::Relaxed) {
            PRESENT => {}
            // A look that comes in between wins by the exchange.
            ASKED if self.change(ASKED, PRESENT) => {}
            _ => return true,
        }
        self.waker.register(waker);
        false
    }

    fn change(&self, from: u8, to: u8) -> bool {
        // Relaxed, as in `note_poll`.
        self.sign
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

impl<U: Unguarded> Look for Cell<U> {
    fn is_absent(&self, asks_only: bool) -> bool {
        // Relaxed, as in `note_poll`. A poll that comes in between wins by the exchange.
        match self.sign.load(Ordering::Relaxed) {
            ASKED if !asks_only => self.change(ASKED, ABSENT),
            PRESENT => {
                let _asked = self.change(PRESENT, ASKED);
                false
            }
            _ => false,
        }
    }

    fn has_ended(&self) -> bool {
        self.sign.load(Ordering::Relaxed) == ABSENT
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            foreign::wake_task(waker);
        }
    }

    fn end(&self, session: &Arc<Session>) -> Option<AbsentAcquisition> {
        let unguarded = self.unguarded.lock().take();
        unguarded?.end(session)
    }
}

impl Session {
    /// Awaits `future`. While it waits, what `make` returns is ended if the future is not polled any more.
    pub(crate) fn beside<U, M, F>(self: &Arc<Self>, make: M, future: F) -> Beside<'_, U, M, F>
    where
        U: Unguarded,
        M: FnOnce() -> U,
        F: Future,
    {
        Beside {
            future,
            session: self,
            make: Some(make),
            cell: None,
        }
    }
}

impl Cells {
    /// Puts something where the watchdog's task finds it.
    fn put<U: Unguarded>(&self, unguarded: U, waker: &Waker) -> NumberedCell<U> {
        let cell = Arc::new(Cell {
            unguarded: Mutex::new(Some(unguarded)),
            sign: AtomicU8::new(PRESENT),
            waker: AtomicWaker::new(),
        });
        // Before others can find the cell, since a look may wake it at once.
        cell.waker.register(waker);
        let numbered = Arc::clone(&cell);
        let number = self.0.lock().insert(numbered);
        NumberedCell { cell, number }
    }

    /// Takes back what was [put](Cells::put) there, unless it was ended.
    fn take<U>(&self, entry: NumberedCell<U>) -> Option<U> {
        let NumberedCell { cell, number } = entry;
        self.remove(number);
        let unguarded = cell.unguarded.lock().take();
        // By name: what a function returns is not dropped if its end panics.
        drop(cell);
        unguarded
    }

    /// Removes a cell from the list. What lies in it stays there.
    fn remove(&self, number: usize) {
        let mut numbered = self.0.lock();
        let removed = numbered.try_remove(number);
        // A crowd of waiters does not keep its room.
        if numbered.is_empty() && numbered.capacity() > SPARE {
            *numbered = Slab::new();
        }
        drop(numbered);
        // Outside of the mutex: its waker may run any code when it is dropped.
        drop(removed);
    }

    /// Ends what futures have that are not polled any more, and asks the others for a sign. `asks_only`: this look is so late
    /// that the machine may have stood still. Returns whether another look is needed.
    pub(super) fn look_for_absent(&self, session: &Arc<Session>, asks_only: bool) -> bool {
        let mut looked_at = Vec::new();
        {
            let numbered = self.0.lock();
            for (_, cell) in numbered.iter().filter(|(_, cell)| !cell.has_ended()) {
                looked_at.push((Arc::clone(cell), cell.is_absent(asks_only)));
            }
        }
        let is_any_asked = looked_at.iter().any(|(_, is_absent)| !is_absent);
        // One line for all, also if a waker panics: on a machine that is too busy, thousands may be absent at each look.
        let mut absent = scopeguard::guard(Vec::new(), |absent: Vec<AbsentAcquisition>| {
            if let Some(AbsentAcquisition { key, call_site }) = absent.first() {
                telemetry::acquisition_absent(key, call_site, absent.len() - 1);
            }
        });
        foreign::each(looked_at, |(cell, is_absent)| {
            if is_absent {
                absent.extend(cell.end(session));
            } else {
                cell.wake();
            }
        });
        is_any_asked
    }
}

pin_project! {
    /// A future beside something that is ended if the future is left. It is small, because each waiter has room for one.
    pub(crate) struct Beside<'s, U: Unguarded, M, F> {
        #[pin]
        future: F,
        session: &'s Session,
        make: Option<M>,
        cell: Option<NumberedCell<U>>,
    }

    impl<U: Unguarded, M, F> PinnedDrop for Beside<'_, U, M, F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some(cell) = this.cell.take() {
                drop(this.session.unguarded.take(cell));
            }
        }
    }
}

/// What has become of something beside a future that is ready.
pub(crate) enum Kept<U, M> {
    /// The future did not wait.
    NotMade(M),
    Made(U),
    /// The future was absent.
    Ended,
}

impl<U, M: FnOnce() -> U> Kept<U, M> {
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, Self::Ended)
    }

    /// Whether the future did not wait.
    pub(crate) fn is_not_made(&self) -> bool {
        matches!(self, Self::NotMade(_))
    }

    /// Takes it back, unless it was ended.
    pub(crate) fn take(self) -> Option<U> {
        match self {
            Self::NotMade(make) => Some(make()),
            Self::Made(unguarded) => Some(unguarded),
            Self::Ended => None,
        }
    }
}

impl<U, M, F> Future for Beside<'_, U, M, F>
where
    U: Unguarded,
    M: FnOnce() -> U,
    F: Future,
{
    /// There is no output of a future that was absent, except if it completes while it is found to be absent.
    type Output = (Option<F::Output>, Kept<U, M>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Some(entry) = this.cell
            && entry.cell.note_poll(cx.waker())
        {
            if let Some(NumberedCell { number, .. }) = this.cell.take() {
                // The look that has found it ends what lies there, if it has not done so yet.
                this.session.unguarded.remove(number);
            }
            return Poll::Ready((None, Kept::Ended));
        }
        if let Poll::Ready(output) = this.future.poll(cx) {
            let kept = match (this.cell.take(), this.make.take()) {
                (Some(cell), _) => {
                    let unguarded = this.session.unguarded.take(cell);
                    unguarded.map_or(Kept::Ended, Kept::Made)
                }
                (None, Some(make)) => Kept::NotMade(make),
                (None, None) => Kept::Ended,
            };
            return Poll::Ready((Some(output), kept));
        }
        if let Some(make) = this.make.take() {
            // Only now: a future that is ready at once needs no cell.
            *this.cell = Some(this.session.unguarded.put(make(), cx.waker()));
            // After the cell is there: a check that begins before finds nothing, and is asked for again.
            this.session.watchdog.check_waiters_soon();
        }
        Poll::Pending
    }
}

impl fmt::Debug for Cells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0.lock().len();
        f.debug_tuple("Cells").field(&number).finish()
    }
}
