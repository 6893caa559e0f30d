//! What a caller has done that no error could tell.

/// Tells the caller of a finished future about the mistake. Without this panic the caller's task would hang. The futures of
/// `std` and of tokio panic as well.
#[track_caller]
pub(crate) fn polled_after_completion() -> ! {
    panic!("a future of distlock was polled after its completion")
}
