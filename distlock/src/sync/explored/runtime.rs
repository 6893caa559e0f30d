//! Runtimes.

#[cfg(not(all(test, distlock_shuttle)))]
pub(crate) use tokio::runtime::{Handle, Id};

#[cfg(all(test, distlock_shuttle))]
pub(crate) use self::explored::{Handle, Id};

#[cfg(all(test, distlock_shuttle))]
mod explored {
    use crate::sync::explored::task::{JoinHandle, spawn};

    /// The id of a runtime. An explored run has one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Id;

    /// The runtime of an explored run, which all its tasks are in.
    #[derive(Clone, Debug)]
    pub(crate) struct Handle;

    /// That there is no runtime, which an explored run never finds.
    #[derive(Debug)]
    pub(crate) struct NoRuntime;

    impl NoRuntime {
        pub(crate) fn is_thread_local_destroyed(&self) -> bool {
            false
        }
    }

    impl Handle {
        pub(crate) fn try_current() -> Result<Self, NoRuntime> {
            Ok(Self)
        }

        pub(crate) fn current() -> Self {
            Self
        }

        pub(crate) fn id(&self) -> Id {
            Id
        }

        pub(crate) fn enter(&self) -> impl Drop + use<> {
            scopeguard::guard((), |()| ())
        }

        pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
        where
            F: Future<Output: Send + 'static> + Send + 'static,
        {
            spawn(future)
        }
    }
}
