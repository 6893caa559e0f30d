//! A second port that speaks TLS.
//!
//! The plain port stays: by it the harness asks its questions, and the tests find out what happens to clients that mix the
//! two up.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::port::{free_port, loopback};
use super::{Builder, RedisServer};
use crate::certificates::{Authority, Certificate};

/// What the TLS port of a server is started with.
#[derive(Clone)]
pub(super) struct TlsPort {
    port: u16,
    certificate: Certificate,
    /// The authority whose certificates the server trusts.
    trusted: String,
    /// Whether clients must have a certificate.
    asks_clients: bool,
    /// Whether the server speaks TLS to other servers, too.
    to_servers: bool,
}

impl TlsPort {
    /// Takes another port: the last one was taken by somebody else.
    pub(super) fn move_on(&mut self) {
        self.port = free_port();
    }

    /// Writes the certificates to the server's directory, and names them on its command line.
    pub(super) fn settings(&self, dir: &Path) -> Vec<OsString> {
        let (cert, key) = write(dir, "server", &self.certificate);
        let mut settings: Vec<OsString> = vec![
            "--tls-port".into(),
            self.port.to_string().into(),
            "--tls-cert-file".into(),
            cert.into(),
            "--tls-key-file".into(),
            key.into(),
        ];
        let word = |on: bool| if on { "yes" } else { "no" };
        let authorities = dir.join("trusted.pem");
        fs::write(&authorities, &self.trusted).expect("the server's directory can be written");
        let switches = [
            "--tls-auth-clients",
            word(self.asks_clients),
            "--tls-replication",
            word(self.to_servers),
            "--tls-ca-cert-file",
        ];
        settings.extend(switches.map(OsString::from));
        settings.push(authorities.into());
        settings
    }

    /// As [`TlsPort::settings`], as lines of a file.
    pub(super) fn lines(&self, dir: &Path) -> Vec<String> {
        let settings = self.settings(dir);
        let words = |pair: &[OsString]| {
            let [name, value] = [0, 1].map(|at| pair[at].display().to_string());
            format!("{} \"{value}\"", name.trim_start_matches("--"))
        };
        settings.chunks(2).map(words).collect()
    }
}

/// TLS of all members of a set, with one certificate.
#[derive(Clone)]
pub(super) struct SetTls {
    certificate: Certificate,
    trusted: String,
    asks_clients: bool,
}

impl SetTls {
    pub(super) fn new(authority: &Authority, asks_clients: bool) -> Self {
        Self {
            certificate: authority.peer(),
            trusted: authority.pem().to_owned(),
            asks_clients,
        }
    }
}

impl std::fmt::Debug for SetTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SetTls").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for TlsPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("TlsPort");
        shown.field("port", &self.port).finish_non_exhaustive()
    }
}

fn write(dir: &Path, name: &str, certificate: &Certificate) -> (PathBuf, PathBuf) {
    let (cert, key) = (
        dir.join(format!("{name}.pem")),
        dir.join(format!("{name}.key")),
    );
    fs::write(&cert, &certificate.cert).expect("the server's directory can be written");
    fs::write(&key, &certificate.key).expect("the server's directory can be written");
    (cert, key)
}

impl Builder {
    /// Opens a second port, which speaks TLS with this certificate.
    pub fn tls(mut self, certificate: &Certificate) -> Self {
        self.tls = Some(TlsPort {
            port: free_port(),
            certificate: certificate.clone(),
            // The server insists on a file of authorities, also where it asks no client for a certificate.
            trusted: certificate.cert.clone(),
            asks_clients: false,
            to_servers: false,
        });
        self
    }

    /// Opens a second port, which speaks TLS as the set does that the server belongs to.
    pub(super) fn tls_of(mut self, set: &SetTls, port: u16, to_servers: bool) -> Self {
        self.tls = Some(TlsPort {
            port,
            certificate: set.certificate.clone(),
            trusted: set.trusted.clone(),
            asks_clients: set.asks_clients,
            to_servers,
        });
        self
    }

    /// As [`Builder::tls`], and admits only clients with a certificate of this authority to that port.
    pub fn mutual_tls(self, certificate: &Certificate, clients: &Authority) -> Self {
        let mut builder = self.tls(certificate);
        if let Some(tls) = &mut builder.tls {
            clients.pem().clone_into(&mut tls.trusted);
            tls.asks_clients = true;
        }
        builder
    }
}

impl RedisServer {
    /// Address of the port that speaks TLS.
    ///
    /// # Panics
    /// If the server was started without one.
    #[must_use]
    pub fn tls_addr(&self) -> SocketAddr {
        loopback(self.tls_port().expect("a server with a TLS port"))
    }

    /// The port that speaks TLS, if there is one.
    pub(super) fn tls_port(&self) -> Option<u16> {
        self.options.tls.as_ref().map(|tls| tls.port)
    }

    /// URL for a client over TLS, without options.
    ///
    /// # Panics
    /// As [`RedisServer::tls_addr`].
    #[must_use]
    pub fn tls_url(&self) -> String {
        format!("rediss://{}", self.tls_addr())
    }

    /// Replaces the certificate while the server runs, also for later restarts. Established connections keep theirs.
    ///
    /// # Panics
    /// If the server refuses it.
    pub async fn renew_certificate(&mut self, certificate: &Certificate) {
        let (cert, key) = write(self.dir(), "renewed", certificate);
        let (cert, key) = (cert.display().to_string(), key.display().to_string());
        let set = [
            "CONFIG",
            "SET",
            "tls-cert-file",
            &cert,
            "tls-key-file",
            &key,
        ];
        self.cli(&set).await;
        if let Some(tls) = &mut self.options.tls {
            tls.certificate = certificate.clone();
        }
    }
}
