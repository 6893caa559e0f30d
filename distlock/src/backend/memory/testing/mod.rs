//! What tests do to a server in this process, and what they see of it: tests of users by the feature `testing`, tests of this
//! workspace by `test-util`.

pub(super) mod faults;
pub(super) mod observe;
#[cfg(feature = "test-util")]
mod workspace;
