//! Certificates and keys as users give them.

use std::fmt;
use std::sync::Arc;

/// Certificates, or a key. The `Debug` output does not contain them.
#[derive(Clone)]
pub(crate) struct Pem(Arc<[u8]>);

/// A client's own certificate, with its private key.
#[derive(Clone, Debug)]
pub(crate) struct ClientPem {
    pub(crate) certificate: Pem,
    pub(crate) key: Pem,
}

impl ClientPem {
    pub(crate) fn new(certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self {
            certificate: Pem::new(certificate),
            key: Pem::new(key),
        }
    }
}

impl Pem {
    pub(crate) fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into().into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the bytes: one of the two is a private key.
        write!(f, "Pem({} bytes)", self.0.len())
    }
}
