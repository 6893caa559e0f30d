//! How much the tests do: all of it, or as much as somebody waits for.

/// The variable that asks for the full size.
const SIZE: &str = "DISTLOCK_TEST_SIZE";

/// A count or a duration in the size that this run has: `full` with `DISTLOCK_TEST_SIZE=full`, else `quick`.
///
/// Tests have the same names in both sizes, and assert the same.
///
/// # Panics
/// If the variable has another value than `full` or `quick`, so that a misspelled one does not pass for a full run.
#[must_use]
pub fn size<T>(quick: T, full: T) -> T {
    pick(std::env::var(SIZE).ok().as_deref(), quick, full)
}

fn pick<T>(asked: Option<&str>, quick: T, full: T) -> T {
    match asked {
        None | Some("" | "quick") => quick,
        Some("full") => full,
        Some(other) => panic!("{SIZE} is {other:?}, and may be \"full\" or \"quick\""),
    }
}

#[cfg(test)]
mod tests {
    use super::pick;

    #[test]
    fn quick_unless_the_full_size_is_asked_for() {
        assert_eq!(pick(None, 1, 2), 1);
        assert_eq!(pick(Some(""), 1, 2), 1);
        assert_eq!(pick(Some("quick"), 1, 2), 1);
        assert_eq!(pick(Some("full"), 1, 2), 2);
    }

    #[test]
    #[should_panic(expected = "\"ful\"")]
    fn other_values_are_refused() {
        pick(Some("ful"), 1, 2);
    }
}
