//! Certificates that a test makes for its server and its clients, good and bad ones.
//!
//! No certificate is stored: each [`Authority`] has its own key, so that two of them do not trust each other's certificates.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// The names under which every server here is reached.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "::1", "localhost"];

/// A certificate authority: it issues the certificates of servers and clients.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its private key, both as PEM.
#[derive(Clone)]
pub struct Certificate {
    /// The certificate.
    pub cert: String,
    /// Its private key.
    pub key: String,
}

impl Authority {
    /// An authority that nobody trusts yet.
    ///
    /// # Panics
    /// If the system has no random numbers.
    #[must_use]
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        // Authorities of one name would be taken for the same one, with a wrong signature.
        let name = format!("authority {}", MADE.fetch_add(1, Ordering::Relaxed));
        let mut params = named(&name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// The authority's own certificate, which its clients must trust.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// For a server on the loopback interface.
    #[must_use]
    pub fn server(&self) -> Certificate {
        self.issue(server(&LOOPBACK))
    }

    /// For a server of this name alone: on the loopback interface it is of the wrong name.
    #[must_use]
    pub fn server_named(&self, name: &str) -> Certificate {
        self.issue(server(&[name]))
    }

    /// For a server on the loopback interface, but over since 2001.
    #[must_use]
    pub fn expired_server(&self) -> Certificate {
        let mut params = server(&LOOPBACK);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(2001, 1, 1);
        self.issue(params)
    }

    /// For a server on the loopback interface that is a client of others like it.
    #[must_use]
    pub fn peer(&self) -> Certificate {
        let mut params = server(&LOOPBACK);
        let as_client = ExtendedKeyUsagePurpose::ClientAuth;
        params.extended_key_usages.push(as_client);
        self.issue(params)
    }

    /// For a server on the loopback interface, but it may issue certificates as well.
    #[must_use]
    pub fn server_that_is_an_authority(&self) -> Certificate {
        let mut params = server(&LOOPBACK);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        self.issue(params)
    }

    /// For a server on the loopback interface, with a critical extension that nobody knows.
    #[must_use]
    pub fn server_with_an_unknown_extension(&self) -> Certificate {
        let mut params = server(&LOOPBACK);
        let nobodys = [1, 3, 6, 1, 4, 1, 99_999, 1];
        let mut extension = CustomExtension::from_oid_content(&nobodys, vec![5, 0]);
        extension.set_criticality(true);
        params.custom_extensions.push(extension);
        self.issue(params)
    }

    /// For a client.
    #[must_use]
    pub fn client(&self) -> Certificate {
        self.issue(client())
    }

    /// For a client, until this time is over.
    ///
    /// # Panics
    /// If the clock stands before 1970.
    #[must_use]
    pub fn client_for(&self, lives: Duration) -> Certificate {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let mut params = client();
        params.not_after = date_time_ymd(1970, 1, 1) + now + lives;
        self.issue(params)
    }

    fn issue(&self, params: CertificateParams) -> Certificate {
        let key = KeyPair::generate().unwrap();
        Certificate {
            cert: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

fn server(names: &[&str]) -> CertificateParams {
    let mut params = named("server", names);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn client() -> CertificateParams {
    let mut params = named("client", &[]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn named(name: &str, reached_as: &[&str]) -> CertificateParams {
    let reached_as = reached_as.iter().copied().map(String::from);
    let mut params = CertificateParams::new(reached_as.collect::<Vec<_>>()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
