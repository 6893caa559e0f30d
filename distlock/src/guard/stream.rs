//! A stream that runs inside the critical section and holds the lock until its last item.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::error::Error;
use crate::guard::Guard;
use crate::guard::critical_section::CriticalSection;
use crate::guard::run::lost_only;

pin_project! {
    /// A stream that holds a lock until it ends, made by [`Guard::hold_stream`].
    ///
    /// After its end and after an error it yields `None`, however often it is polled.
    ///
    /// # Cancel safety
    /// The same as [`Guard::hold_stream`].
    ///
    /// # Examples
    /// See [`Guard::hold_stream`].
    #[must_use = "streams do nothing unless polled; this one holds a lock until it ends or is dropped"]
    pub struct HoldStream<S> {
        locked: CriticalSection,
        #[pin]
        items: Option<S>,
    }

    impl<S> PinnedDrop for HoldStream<S> {
        fn drop(this: Pin<&mut Self>) {
            // The items are dropped first, and inside their section, so that code in their `Drop` still sees the scope.
            let mut this = this.project();
            this.locked.enter(|| this.items.set(None));
        }
    }
}

impl Guard {
    /// Runs a stream inside the critical section and holds the lock until its last item. Use it in functions that return a
    /// stream.
    ///
    /// * Each item is produced as if inside [`scope`](Guard::scope): an acquisition of this key re-enters the hold, and
    ///   the lease is compared with the clock before each poll. The enclosing scopes are those of the first poll.
    /// * At the end of the stream the lock is released. The end is yielded after the release is confirmed, or
    ///   after the hold is [handed over](Guard::release) to another task of this client.
    /// * If the hold is lost, the next poll drops `items` and yields the loss as the last item.
    ///
    /// The code that takes the items runs outside of the critical section. If it acquires this key, it waits until the
    /// stream ends. A loss does not interrupt it. To notice a loss, it can use a future of [`lost`](Guard::lost) that
    /// was made before this call. The lock is held until all items are taken; [`max_hold`](crate::Acquire::max_hold)
    /// limits that time. A stream of results yields results inside results, and `.map(|item| item?)` turns both into
    /// one.
    ///
    /// # Errors
    /// The last item is [`Error::Lost`] if the hold was lost. [`body_completed`](Error::body_completed) is true if the loss
    /// was found by the release, after all items. If the server does not answer the release, a warning is logged: the lease
    /// frees the lock.
    ///
    /// # Cancel safety
    /// Dropping the stream drops `items` and then the guard: the lock is released in the background.
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
            locked: CriticalSection::new(self),
            items: Some(items),
        }
    }
}

impl<S: Stream> Stream for HoldStream<S> {
    type Item = Result<S::Item, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        if let CriticalSection::Running { section, .. } = this.locked {
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
            match next {
                None => this.locked.start_release(),
                lost => {
                    this.locked.abandon();
                    return Poll::Ready(lost);
                }
            }
        }
        let released = ready!(this.locked.poll_released(cx));
        Poll::Ready(lost_only(released).err().map(Err))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = match (self.locked.guard(), &self.items) {
            (Some(_), Some(items)) => items.size_hint(),
            _ => (0, Some(0)),
        };
        if let CriticalSection::Done = self.locked {
            return (0, Some(0));
        }
        // The hold may be lost before the next item, and also after the last one.
        (least.min(1), most.and_then(|most| most.checked_add(1)))
    }
}

impl<S: Stream> FusedStream for HoldStream<S> {
    fn is_terminated(&self) -> bool {
        matches!(self.locked, CriticalSection::Done)
    }
}

impl<S> fmt::Debug for HoldStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldStream")
            .field("guard", &self.locked.guard())
            .finish_non_exhaustive()
    }
}
