//! Waiting for the first of several futures.

#[cfg(not(all(test, distlock_shuttle)))]
pub(crate) use tokio::select;

#[cfg(all(test, distlock_shuttle))]
pub(crate) use self::explored::select;

#[cfg(all(test, distlock_shuttle))]
mod explored {
    /// Tokio's, which polls in the written order: the random order of tokio's own could not be played again.
    macro_rules! select {
        (biased; $($branches:tt)*) => { tokio::select! { biased; $($branches)* } };
        ($($branches:tt)*) => { tokio::select! { biased; $($branches)* } };
    }
    pub(crate) use select;
}
