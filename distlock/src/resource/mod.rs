//! What is locked and by whom: keys, kinds of primitives, owners, and the ids of permits and clients.

#[cfg(feature = "serde")]
mod as_text;
pub(crate) mod identity;
pub(crate) mod key;
pub(crate) mod kind;
pub(crate) mod mode;
pub(crate) mod owner;
pub(crate) mod permit_id;
pub(crate) mod visible;
