//! A hold without a guard, which another client may attach.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use uuid::Uuid;

use super::shares::Shares;
use super::{Guard, Leased};
use crate::config::MAX_TOKEN;
use crate::error::Error;
use crate::resource::kind::{Family, Kind};
use crate::resource::owner::Owner;

/// A hold that was detached from its guard, so that another process can take it over: by
/// [`Client::attach`](crate::Client::attach), or by [`Client::release_detached`](crate::Client::release_detached).
///
/// [`Guard::detach`], [`FencedGuard::detach`](crate::FencedGuard::detach) and
/// [`ExpirablePermit::detach`](crate::ExpirablePermit::detach) make it. It is a short text for other programs: write it by
/// [`Display`](fmt::Display) into a message or a database, and read it there by [`FromStr`]. With the feature `serde` it is
/// serialized as that text. The text has the key, the kind of lock and the owner, and nothing secret. Everyone who may use
/// the server and knows the text can end the hold or take it over.
///
/// Nobody renews the hold while it is detached. It ends with its lease, so the other process has to attach it before. The
/// guide's page on
/// [work that goes on elsewhere](crate::guide::ownership#work-that-goes-on-in-another-process) has an example.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{Client, DetachedHold, MemoryServer};
///
/// let server = MemoryServer::new();
/// let web = Client::builder().in_memory(&server)?;
/// let guard = web.lock("order:42").acquire().await?;
/// let message = guard.detach()?.to_string();
///
/// let worker = Client::builder().in_memory(&server)?;
/// let detached: DetachedHold = message.parse()?;
/// let guard = worker.attach(&detached).await?;
/// assert!(worker.attach(&detached).await.unwrap_err().is_lost()); // once only
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "nobody renews a detached hold: attach it, or release it"]
pub struct DetachedHold<G = Guard> {
    pub(crate) hold: OwnedKey,
    guard: PhantomData<fn() -> G>,
}

/// What another process must know to take over a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnedKey {
    pub(crate) kind: Kind,
    /// Without the client's prefix.
    pub(crate) key: String,
    pub(crate) owner: Owner,
    pub(crate) permits: u32,
    pub(crate) token: Option<u64>,
    /// After which time without use an expirable semaphore removes itself; zero is never.
    pub(crate) expires_after: Duration,
    /// Whether the server may still carry out an attempt of the owner. If so, the client that ends the owner repeats that for a while.
    pub(crate) may_come_late: bool,
}

/// What stands before the key if an attempt of the owner may still be carried out.
const MAY_COME_LATE: char = '?';

/// Whether a server can have issued this token: it counts with 63 bits.
fn is_token(token: &u64) -> bool {
    (1..=MAX_TOKEN).contains(token)
}

/// What each text begins with. Another form would have another number.
const BEGIN: &str = "hold1";

impl<G> DetachedHold<G> {
    pub(crate) fn new(hold: OwnedKey) -> Self {
        Self {
            hold,
            guard: PhantomData,
        }
    }

    /// Returns the key that is held, without the client's prefix.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let detached = client.lock("order:42").acquire().await?.detach()?;
    /// assert_eq!(detached.key(), "order:42");
    /// # Ok(()) }
    /// ```
    pub fn key(&self) -> &str {
        &self.hold.key
    }

    /// Returns the owner that the server knows until the hold is attached.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let detached = client.lock("order:42").acquire().await?.detach()?;
    /// assert_eq!(client.attach(&detached).await?.owner().client_id(), detached.owner().client_id());
    /// # Ok(()) }
    /// ```
    pub fn owner(&self) -> Owner {
        self.hold.owner
    }

    /// Returns the fencing token of the grant, if the lock is a fenced one. The guard that attaches the hold has the same.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let detached = client.fenced_lock("order:42").acquire().await?.detach()?;
    /// assert_eq!(Some(client.attach(&detached).await?.token()), detached.fencing_token());
    /// # Ok(()) }
    /// ```
    pub fn fencing_token(&self) -> Option<u64> {
        self.hold.token
    }
}

impl OwnedKey {
    /// Whether a hold of this kind can be detached: it has one entry in the server, which another owner can take over.
    pub(crate) fn can_have(kind: Kind) -> bool {
        matches!(kind.family(), Family::Lock | Family::Permit)
    }

    fn read(text: &str) -> Option<Self> {
        // At most 7: the key is in the last part, and may contain colons.
        let mut parts = text.splitn(7, ':');
        let mut next = || parts.next();
        if next()? != BEGIN {
            return None;
        }
        let name = next()?;
        let mut kinds = Kind::Reentrant
            .same_data()
            .iter()
            .chain([&Kind::ExpirableSemaphore]);
        let kind = *kinds.find(|kind| kind.name() == name)?;
        let client = Uuid::try_parse(next()?).ok()?;
        let owner = Owner::new(client, next()?.parse().ok()?);
        let permits = next()?.parse().ok().filter(|permits| *permits > 0)?;
        let token = match next()? {
            "" => None,
            token => Some(token.parse().ok().filter(is_token)?),
        };
        // Each grant of a fenced lock has a token, and no other grant has one.
        if token.is_some() != (kind == Kind::Fenced) {
            return None;
        }
        let (expires_after, key) = next()?.split_once('/')?;
        let in_doubt = expires_after.strip_suffix(MAY_COME_LATE);
        Some(Self {
            kind,
            key: key.to_owned(),
            owner,
            permits,
            token,
            expires_after: Duration::from_millis(in_doubt.unwrap_or(expires_after).parse().ok()?),
            may_come_late: in_doubt.is_some(),
        })
    }
}

impl<G> fmt::Display for DetachedHold<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OwnedKey {
            kind,
            key,
            owner,
            permits,
            token,
            expires_after,
            may_come_late,
        } = &self.hold;
        let doubt = may_come_late.then_some(MAY_COME_LATE);
        let doubt = doubt.map(String::from).unwrap_or_default();
        let token = token.map(|token| token.to_string()).unwrap_or_default();
        let expires_after = expires_after.as_millis();
        write!(
            f,
            "{BEGIN}:{kind}:{owner}:{permits}:{token}:{expires_after}{doubt}/{key}"
        )
    }
}

impl<G: Leased> FromStr for DetachedHold<G> {
    type Err = Error;

    /// Reads the text that [`Display`](fmt::Display) has written.
    ///
    /// # Errors
    /// [`Error::InvalidDetachedHold`] for any other text, and for a hold that has another sort of guard.
    fn from_str(text: &str) -> Result<Self, Error> {
        let hold = OwnedKey::read(text).filter(|hold| G::is_of(hold.kind));
        hold.map(Self::new)
            .ok_or_else(|| Error::invalid_detached_hold(text))
    }
}

// By hand: no bound on the sort of guard.
impl<G> Clone for DetachedHold<G> {
    fn clone(&self) -> Self {
        Self::new(self.hold.clone())
    }
}

impl<G> PartialEq for DetachedHold<G> {
    fn eq(&self, other: &Self) -> bool {
        self.hold == other.hold
    }
}

impl<G> Eq for DetachedHold<G> {}

impl<G> fmt::Debug for DetachedHold<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DetachedHold({self})")
    }
}

#[cfg(feature = "serde")]
impl<G> serde::Serialize for DetachedHold<G> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de, G: Leased> serde::Deserialize<'de> for DetachedHold<G> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Guard {
    /// Ends this guard and leaves its hold in the server, so that another process can [attach](crate::Client::attach) it: a web
    /// request takes the lock, and a worker finishes the work and releases it.
    ///
    /// Nothing is sent. The hold is not renewed any more, so it lasts for what is left of its lease: at least
    /// two thirds of [`watchdog_timeout`](crate::Builder::watchdog_timeout) while the watchdog renews in time, or the guard's own
    /// [lease](crate::Acquire::lease). Under a [`max_hold`](crate::Acquire::max_hold) it may be less: the server was asked for no more than the
    /// rest of that. It is never handed over to a waiter of this client. A
    /// [`hold_at_least`](crate::Acquire::hold_at_least) ends with the guard.
    ///
    /// # Errors
    /// * [`Error::Lost`]: the hold is lost, or the guard's own lease is over. If the server still has the hold, it is released in the
    ///   background.
    /// * [`Error::Unsupported`]: the lock is a read/write lock, a multi-lock or a Redlock, whose holds have several entries in the
    ///   servers, or the hold has other guards. The guard is released in the background.
    ///
    /// # Examples
    /// See [`DetachedHold`].
    pub fn detach(self) -> Result<DetachedHold, Error> {
        self.detach_as()
    }

    /// Does the same for a guard type that contains this guard.
    pub(crate) fn detach_as<G>(self) -> Result<DetachedHold<G>, Error> {
        let owned = self.detachable()?;
        self.detach_checked(owned)
    }

    /// What another process must know to take over the hold, if it can be detached. From now on the hold is not handed over.
    fn detachable(&self) -> Result<OwnedKey, Error> {
        let Shares::One(share) = &self.0 else {
            return Err(unsupported(self.key(), SEVERAL));
        };
        let hold = share.hold_ref().hold();
        let resource = &hold.resource;
        if !OwnedKey::can_have(resource.kind) {
            return Err(unsupported(self.key(), SEVERAL));
        }
        if hold.count() != 1 {
            return Err(unsupported(self.key(), SHARED));
        }
        // A waiter of this client would get it otherwise.
        hold.with_lease(|lease| lease.guards.keep_hold());
        Ok(OwnedKey {
            kind: resource.kind,
            key: resource.key.text().to_owned(),
            owner: hold.owner(),
            permits: hold.permits,
            token: hold.token(),
            expires_after: resource.key.expires_after(),
            may_come_late: false,
        })
    }

    fn detach_checked<G>(self, mut owned: OwnedKey) -> Result<DetachedHold<G>, Error> {
        if let Shares::One(share) = self.0 {
            owned.may_come_late = match share.detach()? {
                Some(may_come_late) => may_come_late,
                // A task in a scope of the guard has entered the hold since its guards were counted.
                None => return Err(unsupported(&owned.key, SHARED)),
            };
        }
        Ok(DetachedHold::new(owned))
    }
}

fn unsupported(key: &str, reason: &'static str) -> Error {
    let key = key.to_owned();
    Error::Unsupported { key, reason }
}

const SEVERAL: &str = "`detach` is for locks of one key on one server and for permits; holds of read/write locks, multi-locks and \
                       Redlocks have several entries in the servers";
const SHARED: &str = "the hold has other guards, which renew it; `detach` its last one";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    use crate::guard::fenced::FencedGuard;

    #[tokio::test(start_paused = true)]
    async fn guard_whose_hold_is_entered_while_it_is_detached_is_refused() {
        let client = Client::in_memory();
        let guard = client.lock("order:42").acquire().await.unwrap();
        let owned = guard.detachable().unwrap();
        // As a task in a scope of the guard may do it.
        let other = guard.reenter().unwrap();
        let error = guard.detach_checked::<Guard>(owned).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(other.is_held());
        other.release().await.unwrap();
    }

    fn text(key: &str) -> String {
        format!("hold1:lock:{}:7:1::0/{key}", Uuid::from_u128(5))
    }

    #[test]
    fn text_is_read_back_with_any_key() {
        for key in ["order:42", "a", "::", "a/b:c/d", "ключ", "with blanks:"] {
            let detached: DetachedHold = text(key).parse().unwrap();
            assert_eq!(detached.key(), key);
            assert_eq!(detached.owner(), Owner::new(Uuid::from_u128(5), 7));
            assert_eq!(detached.to_string(), text(key));
        }
        let in_doubt = text("k?/").replace(":0/", ":0?/");
        let detached: DetachedHold = in_doubt.parse().unwrap();
        assert_eq!((detached.key(), detached.hold.may_come_late), ("k?/", true));
        assert_eq!(detached.to_string(), in_doubt);
    }

    #[test]
    fn other_texts_and_holds_of_another_sort_of_guard_are_refused() {
        let good = text("k");
        let with = |from: &str, to: &str| good.replace(from, to);
        for wrong in [
            String::new(),
            "order:42".to_owned(),
            with("hold1", "hold2"),
            with(":lock:", ":read_lock:"),
            with(":lock:", ":semaphore:"),
            with(":7:1:", ":7:0:"),
            with(":7:1:", ":-7:1:"),
            with("::0/", ":x:0/"),
            with("::0/", ":9:0/"),
            with(":lock:", ":fenced_lock:"),
            with(":lock:", ":fenced_lock:").replace("::0/", ":0:0/"),
            with(":lock:", ":fenced_lock:").replace("::0/", ":9223372036854775808:0/"),
            with("0/", "0"),
        ] {
            let error = wrong.parse::<DetachedHold>().unwrap_err();
            assert!(
                matches!(error, Error::InvalidDetachedHold { .. }),
                "{wrong}: {error}"
            );
        }
        assert!(good.parse::<DetachedHold<FencedGuard>>().is_err());
        let fenced = with(":lock:", ":fenced_lock:").replace("::0/", ":9:0/");
        let fenced: DetachedHold<FencedGuard> = fenced.parse().unwrap();
        assert_eq!(fenced.fencing_token(), Some(9));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn serialized_form_is_the_text() {
        let detached: DetachedHold = text("order:42").parse().unwrap();
        let json = serde_json::to_string(&detached).unwrap();
        assert_eq!(json, format!("\"{detached}\""));
        assert_eq!(
            serde_json::from_str::<DetachedHold>(&json).unwrap(),
            detached
        );
        assert!(serde_json::from_str::<DetachedHold<FencedGuard>>(&json).is_err());
    }
}
