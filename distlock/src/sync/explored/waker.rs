//! A waker that another task can take.

#[cfg(not(all(test, distlock_shuttle)))]
pub(crate) use futures_util::task::AtomicWaker;

#[cfg(all(test, distlock_shuttle))]
pub(crate) use self::explored::AtomicWaker;

#[cfg(all(test, distlock_shuttle))]
mod explored {
    use std::task::Waker;

    use crate::sync::explored::point;

    /// The waker of `futures-util`, with a point before each use.
    #[derive(Debug, Default)]
    pub(crate) struct AtomicWaker(futures_util::task::AtomicWaker);

    impl AtomicWaker {
        pub(crate) const fn new() -> Self {
            Self(futures_util::task::AtomicWaker::new())
        }

        pub(crate) fn register(&self, waker: &Waker) {
            point();
            self.0.register(waker);
        }

        pub(crate) fn take(&self) -> Option<Waker> {
            point();
            self.0.take()
        }
    }
}
