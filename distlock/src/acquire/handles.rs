//! Questions to all locks of a Redlock at once.

use super::handle::Handle;
use crate::error::Error;
use crate::sync::all;
use crate::wait::quorum::majority_of;

/// Asks all locks, and returns the answers if a majority gave one.
pub(crate) async fn ask_majority<'a, T, F>(
    handles: &'a [Handle],
    question: impl Fn(&'a Handle) -> F,
) -> Result<MajorityAnswers<T>, Error>
where
    T: Send + 'a,
    F: Future<Output = Result<T, Error>> + Send + 'a,
{
    let majority = majority_of(handles.len());
    let mut answers = Vec::with_capacity(handles.len());
    let mut failed = Vec::new();
    for answer in all(handles.iter().map(question)).await {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(error) => failed.push(error),
        }
    }
    match failed.pop() {
        Some(error) if answers.len() < majority => Err(error),
        last => {
            failed.extend(last);
            Ok(MajorityAnswers {
                answers,
                failed,
                majority,
            })
        }
    }
}

/// The answers of at least a majority of the servers.
pub(crate) struct MajorityAnswers<T> {
    pub(crate) answers: Vec<T>,
    failed: Vec<Error>,
    majority: usize,
}

impl<T> MajorityAnswers<T> {
    /// Picks something out of each answer that has it. Returns what was picked if a majority of the servers has it, and `None` if
    /// it has not.
    ///
    /// # Errors
    /// The error of a server, if it depends on the servers that did not answer.
    pub(crate) fn majority_with<P>(
        self,
        pick: impl Fn(T) -> Option<P>,
    ) -> Result<Option<Vec<P>>, Error> {
        let picked: Vec<P> = self.answers.into_iter().filter_map(pick).collect();
        if picked.len() >= self.majority {
            return Ok(Some(picked));
        }
        let may_have_it = picked.len() + self.failed.len() >= self.majority;
        let error = self.failed.into_iter().next().filter(|_| may_have_it);
        error.map_or(Ok(None), Err)
    }
}
