//! The form of an error that a program shows which ends with it, and that `unwrap` shows: the variant and the text.

use std::fmt;

use super::Error;

/// `main` shows its error in this form, and the text is what says what to do.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.variant())
    }
}

impl Error {
    /// The name to match on. A new variant also gets a constructor in `testing::errors`, and a row in the list of its tests.
    pub(crate) fn variant(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "Timeout",
            Self::Lost { .. } => "Lost",
            Self::Unavailable { .. } => "Unavailable",
            Self::Unreachable { .. } => "Unreachable",
            Self::TimePaused { .. } => "TimePaused",
            Self::ReleasesPending { .. } => "ReleasesPending",
            Self::Denied { .. } => "Denied",
            Self::LoginDenied { .. } => "LoginDenied",
            Self::UnsupportedServer { .. } => "UnsupportedServer",
            Self::WrongType { .. } => "WrongType",
            Self::Protocol { .. } => "Protocol",
            Self::Overloaded { .. } => "Overloaded",
            Self::Unsupported { .. } => "Unsupported",
            Self::NoKeys => "NoKeys",
            Self::Deadlock { .. } => "Deadlock",
            Self::InvalidKey { .. } => "InvalidKey",
            Self::InvalidLease { .. } => "InvalidLease",
            Self::InvalidWait { .. } => "InvalidWait",
            Self::InvalidPermits { .. } => "InvalidPermits",
            Self::InvalidPermitId { .. } => "InvalidPermitId",
            Self::InvalidOwner { .. } => "InvalidOwner",
            Self::InvalidDetachedHold { .. } => "InvalidDetachedHold",
            Self::InvalidCount { .. } => "InvalidCount",
            Self::InvalidConfig { .. } => "InvalidConfig",
            Self::InvalidUrl { .. } => "InvalidUrl",
            Self::NoClient => "NoClient",
            Self::Closed { .. } => "Closed",
        }
    }
}
