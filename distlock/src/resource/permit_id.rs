//! The id of a permit: 16 bytes, as in Redisson.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::error::Error;
use crate::resource::owner::Owner;

/// The id of one permit of an [`ExpirableSemaphore`](crate::ExpirableSemaphore): 16 bytes, written as 32 hex digits.
///
/// Any process that knows the id can release the permit or change its lease. Redisson writes ids with the same digits. With the feature
/// `serde` it is serialized as that text.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// let id: distlock::PermitId = "00112233445566778899aabbccddeeff".parse()?;
/// assert_eq!(id.to_string(), "00112233445566778899aabbccddeeff");
/// assert_eq!(id.as_bytes()[1], 0x11);
/// assert!("no id".parse::<distlock::PermitId>().unwrap_err().is_permanent());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PermitId([u8; 16]);

impl PermitId {
    /// The id of the owner's permit with this number, counted from 0. The id is derived from the owner, so that a
    /// repeated request asks for the same permits.
    pub(crate) fn of(owner: Owner, number: u32) -> Self {
        let name = format!("{}:{number}", owner.number());
        Self(Uuid::new_v5(&owner.client_id(), name.as_bytes()).into_bytes())
    }

    /// The ids of all permits of an owner.
    pub(crate) fn all_of(owner: Owner, permits: u32) -> impl ExactSizeIterator<Item = Self> {
        (0..permits).map(move |number| Self::of(owner, number))
    }

    /// The input from which all ids of an owner are derived, without the number of the permit. The server derives the
    /// ids from it too.
    #[cfg(feature = "redis")]
    pub(crate) fn seed(owner: Owner) -> Vec<u8> {
        let mut seed = owner.client_id().into_bytes().to_vec();
        seed.extend_from_slice(format!("{}:", owner.number()).as_bytes());
        seed
    }

    #[cfg(feature = "redis")]
    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes under which the server stores the permit.
    ///
    /// # Examples
    /// See [`PermitId`].
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl FromStr for PermitId {
    type Err = Error;

    /// Parses 32 hex digits.
    ///
    /// # Errors
    /// [`Error::InvalidPermitId`] for any other text.
    fn from_str(text: &str) -> Result<Self, Error> {
        // The standard library also reads a sign.
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| digits);
        number
            .map(|number| Self(number.to_be_bytes()))
            .ok_or_else(|| Error::invalid_permit_id(text))
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PermitId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(number: u64) -> Owner {
        Owner::new(Uuid::from_u128(7), number)
    }

    #[test]
    fn ids_of_an_owner_are_the_same_each_time_and_of_nobody_else() {
        let ids: Vec<_> = PermitId::all_of(owner(1), 3).collect();
        assert_eq!(ids, PermitId::all_of(owner(1), 3).collect::<Vec<_>>());
        let mut all: Vec<_> = ids
            .into_iter()
            .chain(PermitId::all_of(owner(2), 3))
            .chain(PermitId::all_of(owner(11), 3))
            .collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 9);
    }

    #[test]
    fn text_is_read_back_and_any_other_refused() {
        let id = PermitId::of(owner(5), 0);
        assert_eq!(id.to_string().parse::<PermitId>().unwrap(), id);
        assert_eq!(
            id.to_string().to_uppercase().parse::<PermitId>().unwrap(),
            id
        );
        for text in [
            "",
            "+0112233445566778899aabbccddeef",
            &"0".repeat(31),
            &"é".repeat(16),
            &"g".repeat(32),
            &"0".repeat(33),
        ] {
            let error = text.parse::<PermitId>().unwrap_err();
            assert!(matches!(error, Error::InvalidPermitId { .. }), "{error}");
        }
        let plus = format!("+{}", "0".repeat(31));
        assert!(plus.parse::<PermitId>().is_err());
    }
}
