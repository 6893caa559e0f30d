//! What one candidate knows: whether it leads, and whether it has to stop.

use std::fmt;
use std::mem;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::stream;

use crate::hold::HoldView;
use crate::sync::{foreign, watch};
use crate::telemetry;

/// A candidate.
#[derive(Debug, Default)]
pub(super) struct State {
    known: watch::Sender<Known>,
}

#[derive(Debug, Default)]
struct Known {
    lead: Option<Lead>,
    /// How often the candidate has resigned.
    resigned: u64,
    /// For each run that is under way, how often the candidate had resigned when it began.
    runs: Vec<u64>,
}

/// The term of a leader, and the hold whose end ends the term.
#[derive(Clone, Debug)]
struct Lead {
    term: u64,
    view: HoldView,
}

impl Drop for State {
    fn drop(&mut self) {
        // The streams of changes end, which wakes their tasks.
        foreign::make(|| drop(mem::take(&mut self.known)));
    }
}

impl Known {
    /// The term, unless its lease has ended.
    fn term(&self) -> Option<u64> {
        let lead = self.lead.as_ref().filter(|lead| lead.view.is_held());
        lead.map(|lead| lead.term)
    }
}

impl State {
    pub(super) fn term(&self) -> Option<u64> {
        self.known.borrow().term()
    }

    pub(super) async fn elected(&self) -> u64 {
        let mut known = self.known.subscribe();
        loop {
            let term = known.borrow_and_update().term();
            if let Some(term) = term {
                return term;
            }
            changed(&mut known).await;
        }
    }

    pub(super) fn changes(&self) -> LeaderChanges {
        let known = self.known.subscribe();
        let next = |(mut known, last): (watch::Receiver<Known>, Option<Option<u64>>)| async move {
            loop {
                let term = known.borrow_and_update().term();
                if last != Some(term) {
                    return Some((term, (known, Some(term))));
                }
                // The candidate is gone: nothing changes any more.
                foreign::contain_wakers(known.changed()).await.ok()?;
            }
        };
        // Boxed, because the type of the stream has no name.
        LeaderChanges(Box::pin(stream::unfold((known, None), next)))
    }

    /// Stops all runs that are under way, and waits for their ends.
    pub(super) async fn resign(&self) {
        let mut known = self.known.subscribe();
        let mut resigned = 0;
        foreign::send_modify(&self.known, |known| {
            known.resigned += 1;
            resigned = known.resigned;
        });
        while known
            .borrow_and_update()
            .runs
            .iter()
            .any(|run| *run < resigned)
        {
            changed(&mut known).await;
        }
    }

    /// A run begins.
    pub(super) fn begin(self: &Arc<Self>) -> Running {
        let mut began = 0;
        foreign::send_modify(&self.known, |known| {
            began = known.resigned;
            known.runs.push(began);
        });
        Running {
            state: Arc::clone(self),
            began,
        }
    }
}

/// Completes with the next change. The sender is a field of the state, which the caller borrows.
async fn changed(known: &mut watch::Receiver<Known>) {
    // The sender is a field of the state, which the caller borrows.
    let _open = foreign::contain_wakers(known.changed()).await;
}

/// A run that is under way, until it is dropped.
pub(super) struct Running {
    state: Arc<State>,
    began: u64,
}

impl Running {
    /// Completes when the candidate has resigned.
    pub(super) async fn resigned(&self) {
        let mut known = self.state.known.subscribe();
        while known.borrow_and_update().resigned == self.began {
            changed(&mut known).await;
        }
    }

    pub(super) fn has_resigned(&self) -> bool {
        self.state.known.borrow().resigned != self.began
    }

    /// The candidate leads, until what this returns is dropped.
    pub(super) fn leads<'a>(&'a self, key: &'a str, term: u64, view: HoldView) -> Leading<'a> {
        let lead = Lead {
            term,
            view: view.clone(),
        };
        let leading = Leading {
            state: &self.state,
            key,
            term,
            view,
            reason: None,
        };
        foreign::send_modify(&self.state.known, |known| known.lead = Some(lead));
        telemetry::leads(key, term);
        leading
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let began = self.began;
        foreign::send_modify(&self.state.known, |known| {
            if let Some(at) = known.runs.iter().position(|run| *run == began) {
                known.runs.swap_remove(at);
            }
        });
    }
}

/// A term, until it is dropped.
pub(super) struct Leading<'a> {
    state: &'a State,
    key: &'a str,
    term: u64,
    view: HoldView,
    /// Why it has ended, if its run knows.
    reason: Option<&'static str>,
}

impl Leading<'_> {
    /// The term has ended for this reason.
    pub(super) fn ended(mut self, reason: &'static str) {
        self.reason = Some(reason);
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let term = self.term;
        foreign::send_modify(&self.state.known, |known| {
            // Another run of the same candidate may lead by now.
            known.lead.take_if(|lead| lead.term == term);
        });
        let reason = self.reason.unwrap_or(if self.view.is_held() {
            "the run was dropped, or its body has panicked"
        } else {
            "the lead was lost"
        });
        telemetry::leads_no_more(self.key, term, reason);
    }
}

/// The changes of a candidate's lead: its term, or `None` while it does not lead; made by
/// [`Leader::changes`](crate::Leader::changes).
///
/// The stream has a change when the run of the candidate is polled. [`Leader::is_leader`](crate::Leader::is_leader) also compares
/// clocks. The stream ends with the last handle of the candidate.
///
/// # Cancel safety
/// Dropping the future of the next item loses no change.
///
/// # Examples
/// See [`Leader::changes`](crate::Leader::changes).
#[must_use = "streams do nothing unless polled"]
pub struct LeaderChanges(Pin<Box<dyn Stream<Item = Option<u64>> + Send>>);

impl Stream for LeaderChanges {
    type Item = Option<u64>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

// It only reads, so a panic of a waker leaves nothing half done.
impl UnwindSafe for LeaderChanges {}
impl RefUnwindSafe for LeaderChanges {}

impl fmt::Debug for LeaderChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderChanges").finish_non_exhaustive()
    }
}
