//! Frees a key by force from the holders that a report shows, and from nobody else.

use super::Client;
use crate::backend::reports::{HolderReport, KeyReport, Primitive};
use crate::backend::{Fault, Forced, Seen};
use crate::error::Error;
use crate::resource::key::{Key, Resource};
use crate::resource::kind::Kind;

/// The outcome of [`Client::force_release`].
///
/// # Examples
/// See [`Client::force_release`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the key may be held by somebody else, and was not freed then"]
#[non_exhaustive]
pub enum ForceRelease {
    /// The key was held as the report shows, and is free now.
    Freed,
    /// Nobody held the key.
    WasFree,
    /// The key has another holder or another number than the report shows. Nothing was freed. This is the present report.
    Changed(Box<KeyReport>),
}

impl Client {
    /// Frees a key by force, whichever primitive it is, if its holders are those that `seen` shows.
    ///
    /// [`inspect`](Client::inspect) or [`scan`](Client::scan) make the report. A person may look at it for some time before
    /// deciding. The server compares the holders and frees the key in one step, so an owner that has acquired the key meanwhile
    /// keeps it. A thread of Redisson is the same owner each time that it locks: if it has released the lock since the report and
    /// has acquired it again, only the token of a fenced lock tells that.
    ///
    /// [`Lock::force_release`](crate::Lock::force_release) frees a lock no matter who holds it. Its documentation says what happens
    /// to the former holder, and when to use it.
    ///
    /// | what lives under the key | it is freed if |
    /// | --- | --- |
    /// | a lock of any kind | each present holder is in the report. Readers that have left are no obstacle. If there is a fencing token, it is that of the report |
    /// | an expirable semaphore | each acquired permit is in the report. The semaphore is deleted |
    /// | a semaphore | the number of free permits is that of the report, and each client of this crate that has permits is in it. The semaphore is deleted |
    /// | a latch or another number | the number is that of the report. It is deleted, and a latch opens |
    ///
    /// A report may list only some of [all holders](KeyReport::holder_total). The key is then freed if the number of unlisted
    /// holders has not grown.
    ///
    /// # Errors
    /// * [`Error::WrongType`]: the report is about data of another program, or about a key that could not be read.
    /// * [`Error::Denied`]: the user lacks a right.
    /// * [`Error::Unavailable`]: the server did not answer. The key may or may not have been freed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the key may or may not have been freed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, ForceRelease};
    ///
    /// let client = Client::in_memory();
    /// let guard = client.lock("order:42").acquire().await?;
    /// let seen = client.inspect("order:42").await?;
    ///
    /// // The holder that was seen releases, and another one acquires the lock:
    /// guard.release().await?;
    /// let _next = client.lock("order:42").acquire().await?;
    /// match client.force_release(&seen).await? {
    ///     ForceRelease::Changed(now) => println!("{} holds it by now", now.holders[0].owner),
    ///     other => panic!("{other:?}"),
    /// }
    ///
    /// let seen = client.inspect("order:42").await?;
    /// assert_eq!(client.force_release(&seen).await?, ForceRelease::Freed);
    /// # Ok(()) }
    /// ```
    pub async fn force_release(&self, seen: &KeyReport) -> Result<ForceRelease, Error> {
        let wrong_type = || Error::WrongType {
            key: seen.key.clone(),
        };
        let kind = match seen.primitive {
            Primitive::Nothing => return self.changed_from(seen).await,
            Primitive::OtherData | Primitive::Unreadable => return Err(wrong_type()),
            // Without waiters a fair lock looks like any other. One that began to wait after the look has to be notified.
            Primitive::Lock | Primitive::FencedLock | Primitive::FairLock => Kind::Fair,
            Primitive::ReadLock => Kind::Read,
            Primitive::WriteLock => Kind::Write,
            Primitive::Semaphore => Kind::Semaphore,
            Primitive::ExpirableSemaphore => Kind::ExpirableSemaphore,
            // A latch and an unused semaphore are both a plain number, and the same command frees both.
            Primitive::CountDownLatch | Primitive::Number => Kind::CountDownLatch,
        };
        let registry = self.lives.current();
        let session = &registry.session;
        session.tend_tasks();
        let mut resource = Resource {
            kind,
            key: Key::new(&session.config.key_prefix, &seen.key)?,
        };
        let since = session.now();
        let owners = owners(seen);
        let mut forced = session
            .backend
            .force_release(&resource, Some(&owners))
            .await;
        let is_refused = matches!(forced, Err(Fault::Denied(..) | Fault::WrongType(_)));
        if is_refused && matches!(seen.primitive, Primitive::Lock | Primitive::FencedLock) {
            // A user of plain locks may not use a queue, or other data may be in its place. Nothing was freed.
            resource.kind = Kind::Reentrant;
            forced = session
                .backend
                .force_release(&resource, Some(&owners))
                .await;
        }
        match forced {
            Ok(Forced::Unseen) => self.changed_from(seen).await,
            // Another primitive may live there by now.
            Err(Fault::WrongType(_)) => match self.changed_from(seen).await? {
                ForceRelease::Changed(now) if now.primitive != seen.primitive => {
                    Ok(ForceRelease::Changed(now))
                }
                _ => Err(wrong_type()),
            },
            forced => {
                // Also after a failure: the command may have been carried out.
                registry.freed_by_force(&resource);
                let after = session.now().since(since);
                let forced = forced.map_err(|fault| fault.into_error(&resource.key, after))?;
                if forced == Forced::Freed {
                    session.numbers.is_gone(&resource.key, since);
                }
                Ok(match forced {
                    Forced::Freed => ForceRelease::Freed,
                    _ => ForceRelease::WasFree,
                })
            }
        }
    }

    /// The present report of a key that is not as the caller has seen it.
    async fn changed_from(&self, seen: &KeyReport) -> Result<ForceRelease, Error> {
        let now = self.inspect(&*seen.key).await?;
        // What a lock leaves behind, such as its last token, is no holder.
        let is_free = match now.primitive {
            Primitive::Nothing => true,
            Primitive::Lock
            | Primitive::FencedLock
            | Primitive::FairLock
            | Primitive::ReadLock
            | Primitive::WriteLock => !now.is_held(),
            _ => false,
        };
        Ok(if is_free && seen.primitive == Primitive::Nothing {
            ForceRelease::WasFree
        } else {
            ForceRelease::Changed(Box::new(now))
        })
    }
}

/// The holders that a report shows, and the number or the token.
fn owners(seen: &KeyReport) -> Seen {
    let owners = seen.holders.iter();
    let owners: Vec<String> = owners
        .map(|HolderReport { owner, .. }| owner.clone())
        .collect();
    let number = match seen.primitive {
        Primitive::Lock | Primitive::FencedLock | Primitive::FairLock => seen
            .fencing_token
            .and_then(|token| i64::try_from(token).ok()),
        _ => seen.permits.map(|permits| permits.free).or(seen.count),
    };
    Seen {
        unnamed: seen.holder_total.saturating_sub(owners.len() as u64),
        number,
        owners,
    }
}
