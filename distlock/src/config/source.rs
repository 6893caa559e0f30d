//! What a connection needs that may change: a value, or a function of the user that is asked for it.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;

use crate::error::Cause;
use crate::sync::foreign;

/// The pending answer of a function.
pub(crate) type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Cause>> + Send>>;

/// A value, or where it comes from.
#[derive(Clone)]
pub(crate) enum Source<T> {
    Fixed(T),
    /// A function of the user, which is asked before each connection.
    Asked(Arc<dyn Fn() -> Answer<T> + Send + Sync>),
}

impl<T: Clone + 'static> Source<T> {
    /// The answers of this function, each made into what a connection needs.
    pub(crate) fn asked<F, Fut, A, E>(
        ask: F,
        make: impl Fn(A) -> T + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<A, E>> + Send + 'static,
        A: 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Self::Asked(Arc::new(move || {
            let asked = ask();
            let make = make.clone();
            Box::pin(async move {
                asked
                    .await
                    .map(make)
                    .map_err(|error| Arc::from(error.into()))
            })
        }))
    }

    /// The value for the next connection. A panic of the function is an error of this connection.
    pub(crate) async fn get(&self) -> Result<T, Cause> {
        match self {
            Self::Fixed(value) => Ok(value.clone()),
            Self::Asked(ask) => {
                // The function is not changed by a call, and its future is not used after a panic.
                let asked = async { foreign::call_user(|| ask()).await };
                let answer = AssertUnwindSafe(asked).catch_unwind().await;
                answer.unwrap_or_else(|panic| Err(panicked(&*panic)))
            }
        }
    }
}

/// The error of a function that panicked.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> Cause {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = format!("the function panicked: {}", text.unwrap_or("no text"));
    Arc::from(Box::<dyn StdError + Send + Sync>::from(text))
}

impl<T: fmt::Debug> fmt::Debug for Source<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(value) => value.fmt(f),
            Self::Asked(_) => f.write_str("Asked(..)"),
        }
    }
}

// The function is shared and never changed, as a client's other callbacks.
impl<T> UnwindSafe for Source<T> {}
impl<T> RefUnwindSafe for Source<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_of_a_function_is_its_error_in_the_call_and_in_the_future() {
        type Asked = Result<u8, std::io::Error>;
        fn sealed() -> Asked {
            panic!("no {}", "vault")
        }
        let call = Source::asked(|| std::future::ready(sealed()), |n| n);
        let polled = Source::asked(|| async { sealed() }, |n| n);
        for source in [call, polled] {
            let error = source.get().await.unwrap_err().to_string();
            assert_eq!(error, "the function panicked: no vault");
        }
    }
}
