//! What users lock with. Types and docs; how they wait, renew and end is the mechanism's.

mod lock;

pub use self::lock::{Holder, Lock};
