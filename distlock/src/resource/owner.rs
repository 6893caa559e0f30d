//! The owner of a hold: `<client uuid>:<number>`. A client never uses a number twice. And the holders that a server names.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;
#[cfg(feature = "redis")]
use uuid::fmt::Hyphenated;

use crate::error::Error;

/// The identity under which the server stores a hold: `<client uuid>:<number>`.
///
/// An owner is a grant by the server, and not an acquisition. The client gives each attempt a new number and never uses
/// one again. Several guards may have the same owner:
///
/// * A re-entry has the owner of the hold that it enters.
/// * A hand-over inside a client passes the hold on to the next waiter together with its owner. An acquisition that comes
///   right after a guard was dropped gets the dropped hold in the same way.
///
/// If the server still names the owner of a guard, that guard may thus have ended long ago. Do not compare owners to find
/// out whether a hold is still yours. Ask the guard itself: [`is_held`](crate::Guard::is_held) is `false` and
/// [`lost`](crate::Guard::lost) completes once that guard has ended, even if another guard has the hold now. Code inside a scope asks
/// [`is_held(key)`](crate::is_held) or [`current`](crate::current). To tell one acquisition from another, use the token of
/// a [fenced lock](crate::FencedLock), which is never handed over.
///
/// An owner is useful in logs: the holders that [`holders`](crate::Lock::holders) lists can be matched with a client by its
/// [id](crate::Client::id). Redisson writes its holders in the same form, with the id of a thread as the number. The text of an owner is
/// read back by [`FromStr`], and with the feature `serde` an owner is serialized as that text.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let guard = client.lock("order:42").acquire().await?;
/// assert!(guard.owner().to_string().starts_with(&client.id().to_string()));
///
/// let holders = client.lock("order:42").holders().await?;
/// let owner: distlock::Owner = holders[0].owner.parse()?;
/// assert_eq!(owner, guard.owner());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    client: Uuid,
    number: u64,
}

/// Room for the text of an owner: the id, a colon, and a number of 64 bits.
#[cfg(feature = "redis")]
pub(crate) type OwnerBuffer = [u8; Hyphenated::LENGTH + 1 + u64::MAX.ilog10() as usize + 1];

#[cfg(feature = "redis")]
pub(crate) const OWNER_BUFFER: OwnerBuffer = [0; size_of::<OwnerBuffer>()];

/// An owner that holds a lock, and how often it has entered the lock.
///
/// # Examples
/// See [`Lock::holders`](crate::Lock::holders).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner as the server stores it: `<client uuid>:<number>`, and `<client uuid>:<number>:write` for a writer. It is
    /// `<client uuid>:<number>:rest` if the owner [has released](Holder::is_released) the lock. Bytes that are not UTF-8 are replaced.
    pub owner: String,
    /// How often the owner has entered the lock; 1 if it has released the lock.
    pub count: u64,
}

/// What the server stores at the end of an owner that has released its lock, which stays taken.
pub(crate) const RELEASED: &str = ":rest";

/// What the server stores at the end of an owner that writes.
const WRITER: &str = ":write";

impl Holder {
    /// Returns whether the owner has released the lock, which stays taken until its
    /// [minimum hold time](crate::Acquire::hold_at_least) is over.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let job = client.lock("job");
    /// let guard = job.acquire().hold_at_least(Duration::from_secs(60)).await?;
    /// assert!(!job.holders().await?[0].is_released());
    /// guard.release().await?;
    /// assert!(job.holders().await?[0].is_released() && job.is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub fn is_released(&self) -> bool {
        self.owner.ends_with(RELEASED)
    }
}

/// Whether a holder's name in the server was made by another library, such as Redisson.
pub(crate) fn is_foreign(name: &[u8]) -> bool {
    // The digit of the version in `xxxxxxxx-xxxx-Vxxx-`. Ours is 8.
    name.get(14) != Some(&b'8')
}

impl Owner {
    pub(crate) fn new(client: Uuid, number: u64) -> Self {
        Self { client, number }
    }

    /// What the texts of all owners of a client begin with.
    #[cfg(feature = "redis")]
    pub(crate) fn stem(&self) -> String {
        format!("{}:", self.client)
    }

    /// The text that the server stores, in a buffer of the caller's. It is part of every command, and most commands are sent with
    /// nothing else that has to be allocated for it.
    #[cfg(feature = "redis")]
    pub(crate) fn encode<'b>(&self, buffer: &'b mut OwnerBuffer) -> &'b [u8] {
        let mut number = itoa::Buffer::new();
        let number = number.format(self.number).as_bytes();
        let (client, rest) = buffer.split_at_mut(Hyphenated::LENGTH);
        self.client.as_hyphenated().encode_lower(client);
        let (colon, rest) = rest.split_at_mut(1);
        colon.copy_from_slice(b":");
        rest[..number.len()].copy_from_slice(number);
        &buffer[..Hyphenated::LENGTH + 1 + number.len()]
    }

    /// The owner that the server stores with this text, also as a writer. `None` for other texts, such as that of a key which
    /// stays taken without a holder.
    pub(crate) fn of_text(text: &[u8]) -> Option<Self> {
        let (client, rest) = std::str::from_utf8(text).ok()?.split_once(':')?;
        let (number, more) = rest.split_once(':').unwrap_or((rest, ""));
        // The name of a writer ends with its mode.
        let is_owner = more.is_empty() || more == "write";
        let client = Uuid::try_parse(client).ok().filter(|_| is_owner)?;
        Some(Self::new(client, number.parse().ok()?))
    }

    /// The text that the server stores. It is built without `format!`, which is slower.
    pub(crate) fn text(&self) -> String {
        let mut uuid = Uuid::encode_buffer();
        let mut number = itoa::Buffer::new();
        let uuid = self.client.as_hyphenated().encode_lower(&mut uuid);
        let number = number.format(self.number);
        let mut text = String::with_capacity(uuid.len() + 1 + number.len());
        text.push_str(uuid);
        text.push(':');
        text.push_str(number);
        text
    }

    /// Returns the id of the client that acquired the hold.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.lock("order:42").acquire().await?;
    /// assert_eq!(guard.owner().client_id(), client.id());
    /// # Ok(()) }
    /// ```
    pub fn client_id(&self) -> Uuid {
        self.client
    }

    /// Returns the number of the owner within its client. Numbers start at 1 and grow.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let (one, two) = (client.lock("a").acquire().await?, client.lock("b").acquire().await?);
    /// assert!(one.owner().number() < two.owner().number());
    /// # Ok(()) }
    /// ```
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl FromStr for Owner {
    type Err = Error;

    /// Reads `<client uuid>:<number>`. The text of a [`Holder`] may have more at its end: `:write` for a writer, or `:rest` for an owner
    /// that has released the lock.
    ///
    /// # Errors
    /// [`Error::InvalidOwner`] for any other text.
    fn from_str(text: &str) -> Result<Self, Error> {
        let ends = [RELEASED, WRITER];
        let stem = ends.iter().find_map(|end| text.strip_suffix(end));
        let stem = stem.unwrap_or(text);
        let owner = stem.split_once(':').and_then(|(client, number)| {
            let client = Uuid::try_parse(client).ok()?;
            Some(Self::new(client, number.parse().ok()?))
        });
        // Ids and numbers have other forms too, which no server stores.
        owner
            .filter(|owner| owner.text() == stem)
            .ok_or_else(|| Error::invalid_owner(text))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back_also_that_of_a_holder_and_any_other_refused() {
        let owner = Owner::new(Uuid::from_u128(7), 42);
        for end in ["", ":write", ":rest"] {
            let text = format!("{owner}{end}");
            assert_eq!(text.parse::<Owner>().unwrap(), owner, "{text}");
        }
        let client = Uuid::from_u128(7);
        for text in [
            String::new(),
            client.to_string(),
            format!("{client}:"),
            format!("{client}:x"),
            format!("{client}:+42"),
            format!("{client}:042"),
            format!("{client}:42:"),
            format!("{client}:42:read"),
            format!("{client}:42:write:rest"),
            format!("{}:42", client.simple()),
            format!("{client}:{}0", u64::MAX),
        ] {
            let error = text.parse::<Owner>().unwrap_err();
            assert!(matches!(error, Error::InvalidOwner { .. }), "{text}");
        }
    }

    #[cfg(feature = "redis")]
    #[test]
    fn both_forms_of_the_text_are_the_same() {
        for number in [1, 42, u64::MAX] {
            let owner = Owner::new(Uuid::from_u128(7), number);
            let expected = format!("{}:{number}", Uuid::from_u128(7));
            assert_eq!(owner.text(), expected);
            assert_eq!(owner.encode(&mut OWNER_BUFFER.clone()), expected.as_bytes());
        }
    }
}
