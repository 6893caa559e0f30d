//! Questions to all locks of a multi-lock or of a Redlock at once.

use super::handle::Handle;
use crate::error::Error;
use crate::sync::{all, try_all};
use crate::wait::quorum;

/// How many of these locks, each on another server, are a majority.
pub(crate) fn majority_of(handles: &[Handle]) -> usize {
    quorum::of(handles.len())
}

/// Returns the answers of all locks. The first error ends the other questions.
pub(crate) async fn ask_all<'a, T, F>(
    handles: &'a [Handle],
    question: impl Fn(&'a Handle) -> F,
) -> Result<Vec<T>, Error>
where
    T: Send + 'a,
    F: Future<Output = Result<T, Error>> + Send + 'a,
{
    try_all(handles.iter().map(question)).await
}

/// Asks all locks, and returns the answers if a majority gave one.
pub(crate) async fn ask_majority<'a, T, F>(
    handles: &'a [Handle],
    question: impl Fn(&'a Handle) -> F,
) -> Result<Vec<T>, Error>
where
    T: Send + 'a,
    F: Future<Output = Result<T, Error>> + Send + 'a,
{
    let (answers, mut failed): (Vec<_>, Vec<_>) = all(handles.iter().map(question))
        .await
        .into_iter()
        .partition(Result::is_ok);
    match failed.pop() {
        Some(Err(error)) if answers.len() < majority_of(handles) => Err(error),
        _ => Ok(answers.into_iter().flatten().collect()),
    }
}
