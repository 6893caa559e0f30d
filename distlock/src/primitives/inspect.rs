//! What can be asked about every lock, the same words for each kind.

/// Gives a handle type the questions that all locks answer. `$make` is how the examples come by one.
macro_rules! inspection {
    ($lock:ident, $make:literal) => {
        impl From<$lock> for $crate::Member {
            fn from(lock: $lock) -> Self {
                Self::new(lock.handle)
            }
        }

        impl $lock {
            /// Does anyone hold the lock? The answer is old when it arrives.
            ///
            /// # Errors
            /// [`Error::Unavailable`](crate::Error::Unavailable), [`Error::WrongType`](crate::Error::WrongType),
            /// [`Error::Denied`](crate::Error::Denied), [`Error::InvalidKey`](crate::Error::InvalidKey).
            ///
            /// # Cancel safety
            /// Reads only.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
            /// let client = distlock::Client::in_memory();
            #[doc = concat!("assert!(!", $make, ".is_locked().await?);")]
            /// # Ok(()) }
            /// ```
            pub async fn is_locked(&self) -> Result<bool, $crate::Error> {
                Ok(!self.handle.inspect().await?.holders.is_empty())
            }

            /// Who holds the lock.
            ///
            /// Counts of this client's own holds are exact; the server learns of a changed count a moment later.
            ///
            /// # Errors
            #[doc = concat!("As [`is_locked`](", stringify!($lock), "::is_locked).")]
            ///
            /// # Cancel safety
            /// Reads only.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
            /// let client = distlock::Client::in_memory();
            #[doc = concat!("let lock = ", $make, ";")]
            /// let guard = lock.acquire().await?;
            /// let holders = lock.holders().await?;
            /// assert!(holders[0].owner.starts_with(&guard.owner().to_string()));
            /// # Ok(()) }
            /// ```
            pub async fn holders(&self) -> Result<Vec<$crate::Holder>, $crate::Error> {
                self.handle.holders().await
            }

            /// How often its holders have entered the lock; 0 where it is free.
            ///
            /// # Errors
            #[doc = concat!("As [`is_locked`](", stringify!($lock), "::is_locked).")]
            ///
            /// # Cancel safety
            /// Reads only.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
            /// let client = distlock::Client::in_memory();
            #[doc = concat!("let lock = ", $make, ";")]
            /// let _guard = lock.acquire().await?;
            /// assert_eq!(lock.hold_count().await?, 1);
            /// # Ok(()) }
            /// ```
            pub async fn hold_count(&self) -> Result<u64, $crate::Error> {
                self.handle.hold_count().await
            }

            /// How long the lock stays held unless it is renewed or released; `None` where it is free or its key,
            /// written by somebody else, has no end set.
            ///
            /// # Errors
            #[doc = concat!("As [`is_locked`](", stringify!($lock), "::is_locked).")]
            ///
            /// # Cancel safety
            /// Reads only.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
            /// use std::time::Duration;
            ///
            /// let client = distlock::Client::in_memory();
            #[doc = concat!("let lock = ", $make, ";")]
            /// let _guard = lock.acquire().lease(Duration::from_secs(10)).await?;
            /// assert!(lock.remaining_lease().await?.is_some_and(|left| left <= Duration::from_secs(10)));
            /// # Ok(()) }
            /// ```
            pub async fn remaining_lease(
                &self,
            ) -> Result<Option<::std::time::Duration>, $crate::Error> {
                Ok(self.handle.inspect().await?.ttl)
            }

            /// Frees the lock, whoever holds it; whether anyone did. For people who repair things.
            ///
            /// Waiters are woken. A former holder is told of its loss at its next renewal, within a third of its lease,
            /// and may be at work until then.
            ///
            /// # Errors
            #[doc = concat!("As [`is_locked`](", stringify!($lock), "::is_locked).")]
            ///
            /// # Cancel safety
            /// Dropping the future leaves open whether the lock was freed.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
            /// let client = distlock::Client::in_memory();
            #[doc = concat!("let lock = ", $make, ";")]
            /// let _guard = lock.acquire().await?;
            /// assert!(lock.force_release().await?);
            /// assert!(!lock.is_locked().await?);
            /// # Ok(()) }
            /// ```
            pub async fn force_release(&self) -> Result<bool, $crate::Error> {
                self.handle.force_release().await
            }
        }
    };
}

pub(super) use inspection;
