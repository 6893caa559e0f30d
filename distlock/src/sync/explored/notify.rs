//! Wake-ups.

#[cfg(not(all(test, distlock_shuttle)))]
pub(crate) use tokio::sync::Notify;

#[cfg(all(test, distlock_shuttle))]
pub(crate) use self::explored::Notify;

#[cfg(all(test, distlock_shuttle))]
#[allow(
    clippy::disallowed_methods,
    reason = "only `foreign` calls these methods"
)]
mod explored {
    use tokio::sync::futures::Notified;

    use crate::sync::explored::point;

    /// The `Notify` of tokio, with a point before each use.
    #[derive(Debug, Default)]
    pub(crate) struct Notify(tokio::sync::Notify);

    impl Notify {
        pub(crate) const fn new() -> Self {
            Self(tokio::sync::Notify::const_new())
        }

        pub(crate) fn notified(&self) -> Notified<'_> {
            point();
            self.0.notified()
        }

        pub(crate) fn notify_one(&self) {
            point();
            self.0.notify_one();
        }
    }
}
