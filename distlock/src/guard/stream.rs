//! A stream inside the critical section, and the guard with it: the hold lasts until the last item.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::error::Error;
use crate::guard::Guard;
use crate::guard::run::{Releasing, lost_only};
use crate::scope::Section;

enum Stage {
    // The section first: its frame closes before its guard ends.
    Running(Section, Guard),
    Releasing(Releasing),
    Done,
}

pin_project! {
    /// A stream that holds a lock until it ends; made by [`Guard::hold_stream`].
    ///
    /// After its end, and after an error, it says `None` as often as it is asked.
    #[must_use = "streams do nothing unless polled; this one holds a lock until it ends or is dropped"]
    pub struct HoldStream<S> {
        stage: Stage,
        #[pin]
        items: Option<S>,
    }

    impl<S> PinnedDrop for HoldStream<S> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            match this.stage {
                Stage::Running(section, _) => section.enter(|| this.items.set(None)),
                _ => this.items.set(None),
            }
        }
    }
}

impl Guard {
    /// Runs a stream inside the critical section, and holds until its last item: for functions that return one.
    ///
    /// * Each item is made as by [`scope`](Guard::scope): what acquires this key again re-enters, and the clock is
    ///   compared first. The scopes around are those of the first poll.
    /// * At the stream's end the hold is released, and that is confirmed before the end is told.
    /// * A hold that was lost is told by the next poll, which drops `items`: the loss is the last item.
    ///
    /// Whoever takes the items is outside: there acquiring this key waits for the stream to end, and a loss cuts nothing
    /// short; a [`lost`](Guard::lost) of the guard, made before, tells of it. Who is slow to take them holds for as long:
    /// [`max_hold`](crate::Acquire::max_hold) bounds that. A stream of results gives results in results;
    /// `.map(|item| item?)` makes one of both.
    ///
    /// # Errors
    /// As its last item [`Error::Lost`], with [`body_completed`](Error::body_completed) where the release found it, so
    /// after all items. A release that nobody answers is logged, no more: the lease frees the lock.
    ///
    /// # Cancel safety
    /// Dropping it drops `items`, and then the guard: the lock is released in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, Error};
    /// use futures_util::{Stream, TryStreamExt, stream};
    ///
    /// async fn rows(client: &Client) -> Result<impl Stream<Item = Result<u64, Error>> + use<>, Error> {
    ///     let guard = client.lock("report").acquire().await?;
    ///     Ok(guard.hold_stream(stream::iter(0..3)))
    /// }
    ///
    /// let client = Client::in_memory();
    /// let rows = rows(&client).await?;
    /// assert!(client.lock("report").is_locked().await?);
    /// assert_eq!(rows.try_collect::<Vec<_>>().await?, [0, 1, 2]);
    /// assert!(!client.lock("report").is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub fn hold_stream<S: Stream>(self, items: S) -> HoldStream<S> {
        HoldStream {
            stage: Stage::Running(self.section(), self),
            items: Some(items),
        }
    }
}

impl<S: Stream> Stream for HoldStream<S> {
    type Item = Result<S::Item, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        loop {
            match this.stage {
                Stage::Running(section, _) => {
                    let mut items = this.items.as_mut();
                    let next = section.poll_in(cx, |cx| match items.as_mut().as_pin_mut() {
                        Some(items) => items.poll_next(cx),
                        None => Poll::Ready(None),
                    });
                    let next = ready!(next).transpose();
                    if let Some(Ok(item)) = next {
                        return Poll::Ready(Some(Ok(item)));
                    }
                    section.enter(|| items.set(None));
                    let Stage::Running(section, guard) = std::mem::replace(this.stage, Stage::Done)
                    else {
                        return Poll::Ready(None);
                    };
                    drop(section);
                    match next {
                        None => *this.stage = Stage::Releasing(Box::pin(guard.release())),
                        // Lost: dropping the guard ends what is left of the hold, in the background.
                        lost => return Poll::Ready(lost),
                    }
                }
                Stage::Releasing(releasing) => {
                    let released = ready!(releasing.as_mut().poll(cx));
                    *this.stage = Stage::Done;
                    return Poll::Ready(lost_only(released).err().map(Err));
                }
                Stage::Done => return Poll::Ready(None),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = match (&self.stage, &self.items) {
            (Stage::Done, _) => return (0, Some(0)),
            (Stage::Running(..), Some(items)) => items.size_hint(),
            _ => (0, Some(0)),
        };
        // It may be lost before the next item, and after the last one.
        (least.min(1), most.and_then(|most| most.checked_add(1)))
    }
}

impl<S: Stream> FusedStream for HoldStream<S> {
    fn is_terminated(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }
}

impl<S> fmt::Debug for HoldStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stage, guard) = match &self.stage {
            Stage::Running(_, guard) => ("Running", Some(guard)),
            Stage::Releasing(_) => ("Releasing", None),
            Stage::Done => ("Done", None),
        };
        f.debug_struct("HoldStream")
            .field("stage", &stage)
            .field("guard", &guard)
            .finish_non_exhaustive()
    }
}
