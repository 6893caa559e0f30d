//! What the compiler says of a guard that has no fencing token.

/// Implemented by nothing that lacks a token.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the guard of this lock has no fencing token",
    label = "not the guard of a fenced lock",
    note = "`client.fenced_lock(key)` makes a lock whose guards have one",
    note = "where the kind of lock is a setting, as with a `Mode`, call `.fencing_token()`"
)]
pub trait HasToken {}
