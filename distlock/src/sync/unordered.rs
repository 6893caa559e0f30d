//! Futures that are polled beside each other.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::explored::mutex::Mutex;

/// Futures that are polled beside each other, and whose outputs come as they are ready.
///
/// What many tasks go through uses [`FuturesUnordered`] itself, and everything else this: to the compiler, each type of future
/// that is put into a `FuturesUnordered` is another one, and costs the users of this crate a third of a second. Here all futures are
/// of one type, because each of them puts its output into a list.
pub(crate) struct Unordered<'a, T> {
    running: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>,
    outputs: Arc<Mutex<VecDeque<T>>>,
}

impl<T> Default for Unordered<'_, T> {
    fn default() -> Self {
        Self {
            running: FuturesUnordered::new(),
            outputs: Arc::default(),
        }
    }
}

impl<'a, T: Send + 'a> Unordered<'a, T> {
    pub(crate) fn push(&mut self, future: impl Future<Output = T> + Send + 'a) {
        let outputs = Arc::clone(&self.outputs);
        self.running.push(Box::pin(async move {
            let output = future.await;
            outputs.lock().push_back(output);
        }));
    }

    /// Whether nothing runs, and no output is left to be taken.
    #[cfg(any(test, feature = "redis"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.outputs.lock().is_empty()
    }

    /// The next output; `None` if there are no futures any more. A call that is dropped takes none.
    pub(crate) async fn next(&mut self) -> Option<T> {
        loop {
            if let Some(output) = self.outputs.lock().pop_front() {
                return Some(output);
            }
            self.running.next().await?;
        }
    }
}

impl<'a, T: Send + 'a, F: Future<Output = T> + Send + 'a> Extend<F> for Unordered<'a, T> {
    fn extend<I: IntoIterator<Item = F>>(&mut self, futures: I) {
        for future in futures {
            self.push(future);
        }
    }
}

impl<'a, T: Send + 'a, F: Future<Output = T> + Send + 'a> FromIterator<F> for Unordered<'a, T> {
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> Self {
        let mut unordered = Self::default();
        unordered.extend(futures);
        unordered
    }
}

/// The outputs of all futures, in the order of the futures.
pub(crate) async fn all<'a, T, F>(futures: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'a,
    F: Future<Output = T> + Send + 'a,
{
    let numbered = futures.into_iter().enumerate();
    let mut running: Unordered<'a, (usize, T)> = numbered
        .map(|(number, future)| async move { (number, future.await) })
        .collect();
    // Counted after they were made, since an iterator need not know its length.
    let mut outputs: Vec<Option<T>> = running.running.iter().map(|_| None).collect();
    while let Some((number, output)) = running.next().await {
        outputs[number] = Some(output);
    }
    outputs.into_iter().flatten().collect()
}

/// The outputs of all futures, in the order of the futures, or the first error. What still runs by then is dropped.
pub(crate) async fn try_all<'a, T, E, F>(futures: impl IntoIterator<Item = F>) -> Result<Vec<T>, E>
where
    T: Send + 'a,
    E: Send + 'a,
    F: Future<Output = Result<T, E>> + Send + 'a,
{
    let numbered = futures.into_iter().enumerate();
    let mut running: Unordered<'a, Result<(usize, T), E>> = numbered
        .map(|(number, future)| async move { Ok((number, future.await?)) })
        .collect();
    let mut outputs: Vec<Option<T>> = running.running.iter().map(|_| None).collect();
    while let Some(output) = running.next().await {
        let (number, output) = output?;
        outputs[number] = Some(output);
    }
    Ok(outputs.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::time::sleep;

    use super::*;

    async fn after(seconds: u64) -> u64 {
        sleep(Duration::from_secs(seconds)).await;
        seconds
    }

    #[tokio::test(start_paused = true)]
    async fn outputs_come_as_they_are_ready_and_all_gives_them_in_order() {
        let mut running: Unordered<'_, u64> = [3, 1, 2].map(after).into_iter().collect();
        assert!(running.next().now_or_never().is_none());
        for seconds in 1..=3 {
            assert!(!running.is_empty());
            assert_eq!(running.next().await, Some(seconds));
        }
        assert!(running.is_empty());
        assert_eq!(running.next().await, None);
        assert_eq!(all([3, 1, 2].map(after)).await, [3, 1, 2]);
    }

    #[tokio::test]
    async fn dropped_call_takes_no_output() {
        let mut running = Unordered::default();
        running.push(ready(7));
        running.push(pending());
        drop(running.next());
        assert_eq!(running.next().now_or_never(), Some(Some(7)));
        assert_eq!(running.next().now_or_never(), None);
    }

    #[tokio::test]
    async fn first_error_ends_the_others() {
        let futures = [ready(Err("first")).left_future(), pending().right_future()];
        assert_eq!(try_all::<u32, _, _>(futures).await, Err("first"));
        assert_eq!(
            try_all([ready(Ok::<_, ()>(1)), ready(Ok(2))]).await,
            Ok(vec![1, 2])
        );
    }
}
