//! The slots of a cluster, and the part of a name that decides about its slot.

use crc::{CRC_16_XMODEM, Crc};

/// The number of slots of every cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// The checksum that decides about the slot of a name.
const CHECKSUM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

pub(crate) fn slot_of(name: &str) -> u16 {
    CHECKSUM.checksum(hashed_part(name).as_bytes()) % SLOTS
}

/// The part of a name that decides about its slot: what stands between the first `{` and the first `}` after it, if
/// anything does, and otherwise the whole name.
pub(crate) fn hashed_part(name: &str) -> &str {
    let tag = name
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    tag.map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty())
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_that_a_server_computes() {
        // CLUSTER KEYSLOT of Redis 7.0.15.
        for (name, slot) in [
            ("", 0),
            ("123456789", 12_739),
            ("foo", 12_182),
            ("{foo}:bar", 12_182),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar}{zap}", 5_061),
            ("bar", 5_061),
            ("{bar", 4_015),
        ] {
            assert_eq!(slot_of(name), slot, "{name:?}");
        }
    }

    #[test]
    fn only_the_first_tag_counts_and_an_empty_one_is_none() {
        for (name, part) in [
            ("k", "k"),
            ("{a}b", "a"),
            ("x{a}{b}", "a"),
            ("{}x", "{}x"),
            ("{}{b}", "{}{b}"),
            ("a{b", "a{b"),
            ("a}b", "a}b"),
            ("a}b{c}", "c"),
            ("{{a}}", "{a"),
            ("", ""),
        ] {
            assert_eq!(hashed_part(name), part, "{name:?}");
        }
    }
}
