//! The releases of one guard that holds several keys, or one key of several servers.

use smallvec::{SmallVec, smallvec};

use super::confirm::{Release, confirm_all};
use crate::error::Error;
use crate::sync::Unordered;

/// Releases several holds at once. Holds of one client are released by one command where that is possible. When enough
/// releases of a quorum are confirmed, the others continue in the background.
pub(crate) async fn release_several(
    ended: Vec<Result<Option<Release>, Error>>,
    needs: usize,
) -> Result<(), Error> {
    let all = ended.len();
    let mut results: Vec<Result<(), Error>> = Vec::with_capacity(all);
    let mut groups: Vec<SmallVec<[Release; 1]>> = Vec::new();
    for one in ended {
        match one {
            Ok(None) => results.push(Ok(())),
            Err(lost) => results.push(Err(lost)),
            Ok(Some(release)) => {
                match groups.iter_mut().find(|group| group[0].goes_with(&release)) {
                    Some(group) => group.push(release),
                    None => groups.push(smallvec![release]),
                }
            }
        }
    }
    let enough = |results: &[Result<(), Error>]| {
        let confirmed = results.iter().filter(|result| result.is_ok());
        needs < all && confirmed.count() >= needs
    };
    if groups.len() == 1 && !enough(&results) {
        // Usually one command releases all of them, and nothing runs beside it.
        for group in groups {
            results.extend(confirm_all(group).await);
        }
    } else {
        let mut answers: Unordered<'_, _> = groups.into_iter().map(confirm_all).collect();
        while !enough(&results)
            && let Some(more) = answers.next().await
        {
            results.extend(more);
        }
    }
    if enough(&results) {
        return Ok(());
    }
    // A loss comes first if the guard did not have as many as it needed. The others that failed are released in the background.
    let is_lost = |result: &Result<(), Error>| matches!(result, Err(error) if error.is_lost());
    let lost = results.iter().filter(|result| is_lost(result)).count();
    let first = results.iter().position(|result| match result {
        Ok(()) => false,
        Err(error) => error.is_lost() == (lost > all - needs),
    });
    match first {
        Some(first) => results.swap_remove(first),
        None => results.into_iter().collect(),
    }
}
