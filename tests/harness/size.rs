//! How much the tests do: all of it, as much as somebody waits for, or what takes minutes and is run by hand.

/// The variable that asks for the full size.
const SIZE: &str = "DISTLOCK_TEST_SIZE";

/// A count or a duration in the size that this run has: `full` with `DISTLOCK_TEST_SIZE=full` or `long`, else `quick`.
///
/// Tests have the same names in both sizes, and assert the same.
///
/// # Panics
/// If the variable has another value than `quick`, `full` or `long`, so that a misspelled one does not pass for a full run.
#[must_use]
pub fn size<T>(quick: T, full: T) -> T {
    match asked() {
        Size::Quick => quick,
        Size::Full | Size::Long => full,
    }
}

/// A count or a duration that takes minutes at its full size: `long` with `DISTLOCK_TEST_SIZE=long`, which is the full size
/// everywhere else, and `short` in all other runs.
///
/// # Panics
/// As [`size`].
#[must_use]
pub fn long_size<T>(short: T, long: T) -> T {
    match asked() {
        Size::Quick | Size::Full => short,
        Size::Long => long,
    }
}

#[derive(Debug, PartialEq)]
enum Size {
    Quick,
    Full,
    Long,
}

fn asked() -> Size {
    read(std::env::var(SIZE).ok().as_deref())
}

fn read(asked: Option<&str>) -> Size {
    match asked {
        None | Some("" | "quick") => Size::Quick,
        Some("full") => Size::Full,
        Some("long") => Size::Long,
        Some(other) => {
            panic!("{SIZE} is {other:?}, and may be \"long\", \"full\" or \"quick\"")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Size, read};

    #[test]
    fn quick_unless_the_full_size_is_asked_for() {
        assert_eq!(read(None), Size::Quick);
        assert_eq!(read(Some("")), Size::Quick);
        assert_eq!(read(Some("quick")), Size::Quick);
        assert_eq!(read(Some("full")), Size::Full);
        assert_eq!(read(Some("long")), Size::Long);
    }

    #[test]
    #[should_panic(expected = "\"ful\"")]
    fn other_values_are_refused() {
        read(Some("ful"));
    }
}
