//! The releases of one guard that holds several keys, or one key of several servers.

use smallvec::SmallVec;

use super::confirm::{Release, confirm_all};
use crate::error::Error;
use crate::sync::Unordered;

type Results = Vec<Result<(), Error>>;

/// Releases that one command can send.
type Group = SmallVec<[Release; 1]>;

/// Releases several holds at once, whose guards have just ended. Holds of one client are released by one command where that is possible.
/// When enough releases of a quorum are confirmed, the others continue in the background.
pub(crate) fn release_several(
    ended: impl ExactSizeIterator<Item = Result<Option<Release>, Error>>,
    needs: usize,
) -> impl Future<Output = Result<(), Error>> {
    let all = ended.len();
    let (mut results, mut groups) = grouped(ended);
    async move {
        let enough = |results: &Results| {
            let confirmed = results.iter().filter(|result| result.is_ok());
            needs < all && confirmed.count() >= needs
        };
        if groups.len() == 1
            && !enough(&results)
            && let Some(group) = groups.pop()
        {
            // Usually one command releases all of them, and nothing runs beside it.
            let released = confirm_all(group).await;
            if results.is_empty() {
                results = released;
            } else {
                results.extend(released);
            }
        } else {
            // Boxed: this is rare, and the release of a multi-lock would have room for it.
            Box::pin(confirm_until(&enough, groups, &mut results)).await;
        }
        if enough(&results) {
            return Ok(());
        }
        result_of_all(results, all - needs)
    }
}

/// What needs no release, and the others in groups.
fn grouped(
    mut ended: impl ExactSizeIterator<Item = Result<Option<Release>, Error>>,
) -> (Results, Vec<Group>) {
    let mut results = Results::new();
    let mut groups = Vec::<Group>::new();
    while let Some(one) = ended.next() {
        match one {
            Ok(None) => results.push(Ok(())),
            Err(lost) => results.push(Err(lost)),
            Ok(Some(release)) => {
                match groups.iter_mut().find(|group| group[0].goes_with(&release)) {
                    Some(group) => group.push(release),
                    None => {
                        // Usually all of them go together.
                        let mut group = Group::with_capacity(1 + ended.len());
                        group.push(release);
                        groups.push(group);
                    }
                }
            }
        }
    }
    (results, groups)
}

/// Sends a command for each group, until enough releases are confirmed.
async fn confirm_until(
    enough: &(impl Fn(&Results) -> bool + Sync),
    groups: Vec<Group>,
    results: &mut Results,
) {
    let mut answers: Unordered<'_, _> = groups.into_iter().map(confirm_all).collect();
    while !enough(results)
        && let Some(more) = answers.next().await
    {
        results.extend(more);
    }
}

/// The result of a release of which too few are confirmed. `spare`: how many holds more the guard had than it needed.
fn result_of_all(mut results: Results, spare: usize) -> Result<(), Error> {
    // A loss comes first if the guard did not have as many as it needed. The others that failed are released in the background.
    let is_lost = |result: &Result<(), Error>| matches!(result, Err(error) if error.is_lost());
    let lost = results.iter().filter(|result| is_lost(result)).count();
    let first = results.iter().position(|result| match result {
        Ok(()) => false,
        Err(error) => error.is_lost() == (lost > spare),
    });
    match first {
        Some(first) => results.swap_remove(first),
        None => results.into_iter().collect(),
    }
}
