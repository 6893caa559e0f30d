//! The settings of TLS.

#[cfg(feature = "_tls")]
use std::error::Error as StdError;
use std::path::PathBuf;

use super::Builder;
#[cfg(feature = "_tls")]
use crate::config::pem::{ClientPem, Pem};
#[cfg(feature = "_tls")]
use crate::config::source::Source;

/// Settings of TLS.
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
impl Builder {
    /// Sets the certificates of the authorities that the client trusts, as PEM; those of the system by default, and with the
    /// feature `tls-rustls-webpki-roots` those that Mozilla trusts as well.
    ///
    /// The PEM has one certificate or several. The client then trusts no other authority. The setting applies to servers and
    /// Sentinels. Connections have TLS if the URL says `rediss`.
    ///
    /// # Errors
    /// A PEM without a certificate is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when a client with TLS is
    /// made, before anything is sent. A PEM, a file or a function of this kind is also refused if the URL has no TLS, because it
    /// would have no effect.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let authority = std::fs::read("/etc/shop/ca.pem")?;
    /// let builder = distlock::Client::builder().tls_ca_pem(authority);
    /// let client = builder.connect("rediss://locks.example.com:6379").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "_tls")]
    #[cfg_attr(
        docsrs,
        doc(cfg(any(feature = "tls-rustls", feature = "tls-native-tls")))
    )]
    pub fn tls_ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.config.tls.ca_pem = Some(Source::Fixed(Pem::new(pem)));
        self
    }

    /// Sets the client's own certificate and its private key, each as PEM; none by default.
    ///
    /// Servers that are set to `tls-auth-clients yes` ask for it (mutual TLS). Certificates of intermediate authorities
    /// follow the client's own in the same PEM. With `tls-rustls` the key may be in PKCS #8, PKCS #1 or SEC1; with
    /// `tls-native-tls` in PKCS #8.
    ///
    /// # Errors
    /// A PEM without a certificate or without a key, and a key that is not the certificate's, are reported as
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) when a client with TLS is made, before anything is sent. The
    /// error does not contain the key.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (certificate, key) = (std::fs::read("shop.pem")?, std::fs::read("shop.key")?);
    /// let builder = distlock::Client::builder().tls_client_pem(certificate, key);
    /// let client = builder.connect("rediss://locks.example.com:6379").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "_tls")]
    #[cfg_attr(
        docsrs,
        doc(cfg(any(feature = "tls-rustls", feature = "tls-native-tls")))
    )]
    pub fn tls_client_pem(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.config.tls.client_pem = Some(Source::Fixed(ClientPem::new(certificate, key)));
        self
    }

    /// Sets a function that gives the certificates of the authorities, as [`tls_ca_pem`](Builder::tls_ca_pem) takes them. The
    /// client calls it before each connection with TLS.
    ///
    /// The nearest setting with a plain value is [`tls_ca_file`](Builder::tls_ca_file).
    ///
    /// # Errors
    /// If the function fails or panics, or if its PEM cannot be used, the attempt to connect fails. The client tries again as in
    /// every outage.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// async fn from_vault() -> Result<Vec<u8>, std::io::Error> {
    /// #   Ok(Vec::new())
    /// }
    /// let builder = distlock::Client::builder().tls_ca_pem_from(from_vault);
    /// let client = builder.connect("rediss://locks.example.com:6379").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "_tls")]
    #[cfg_attr(
        docsrs,
        doc(cfg(any(feature = "tls-rustls", feature = "tls-native-tls")))
    )]
    pub fn tls_ca_pem_from<F, Fut, P, E>(mut self, source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<P, E>> + Send + 'static,
        P: Into<Vec<u8>> + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.config.tls.ca_pem = Some(Source::asked(source, Pem::new));
        self
    }

    /// Sets a function that gives the client's own certificate and its private key, as
    /// [`tls_client_pem`](Builder::tls_client_pem) takes them. The client calls it before each connection with TLS, so a
    /// certificate that lives for an hour can be replaced in time.
    ///
    /// The nearest setting with plain values is [`tls_client_files`](Builder::tls_client_files).
    ///
    /// # Errors
    /// If the function fails or panics, or if its PEM cannot be used, the attempt to connect fails. The client tries again as in
    /// every outage. The text of the error should not contain the key.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// async fn from_vault() -> Result<(Vec<u8>, Vec<u8>), std::io::Error> {
    /// #   Ok((Vec::new(), Vec::new()))
    /// }
    /// let builder = distlock::Client::builder().tls_client_pem_from(from_vault);
    /// let client = builder.connect("rediss://locks.example.com:6379").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "_tls")]
    #[cfg_attr(
        docsrs,
        doc(cfg(any(feature = "tls-rustls", feature = "tls-native-tls")))
    )]
    pub fn tls_client_pem_from<F, Fut, C, K, E>(mut self, source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(C, K), E>> + Send + 'static,
        C: Into<Vec<u8>> + 'static,
        K: Into<Vec<u8>> + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let make = |(certificate, key)| ClientPem::new(certificate, key);
        self.config.tls.client_pem = Some(Source::asked(source, make));
        self
    }

    /// Sets the file of the certificates of the authorities, as [`tls_ca_pem`](Builder::tls_ca_pem) takes them. The client reads
    /// it again for each connection with TLS, so the file may be replaced while the program runs.
    ///
    /// [`tls_ca_pem`](Builder::tls_ca_pem) and its function win over the file.
    ///
    /// # Errors
    /// A file that cannot be read or used is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when a client with
    /// TLS is made. Later only the attempt to connect fails, and the client tries again.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().tls_ca_file("/etc/shop/ca.pem");
    /// let client = builder.connect("rediss://locks.example.com:6379").await?;
    /// # Ok(()) }
    /// ```
    pub fn tls_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.tls_ca_file = Some(path.into());
        self
    }

    /// Sets the files of the client's own certificate and of its private key, as [`tls_client_pem`](Builder::tls_client_pem)
    /// takes them. The client reads them again for each connection with TLS, so another program may replace them before the
    /// certificate expires.
    ///
    /// If the two files do not belong together, because one of them is about to be replaced, the attempt to connect fails and the
    /// client tries again. [`tls_client_pem`](Builder::tls_client_pem) and its function win over the files.
    ///
    /// # Errors
    /// Files that cannot be read or used are reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when a client with
    /// TLS is made. Later only the attempt to connect fails.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().tls_client_files("/run/tls/shop.pem", "/run/tls/shop.key");
    /// let client = builder.connect("rediss://locks.example.com:6379").await?;
    /// # Ok(()) }
    /// ```
    pub fn tls_client_files(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.settings.tls_client_cert_file = Some(certificate.into());
        self.settings.tls_client_key_file = Some(key.into());
        self
    }

    /// Sets the name that the servers' certificates have, instead of the host of each server's address.
    ///
    /// Use it where the client reaches a server by another name than the one in its certificate: through a tunnel or a port
    /// forward, or by the IP addresses that the nodes of a cluster announce. The client sends this name to the server (SNI), and
    /// checks the certificate against it. It applies to Sentinels as well.
    ///
    /// # Errors
    /// A text that is neither a host name nor an IP address is reported as
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) when a client with TLS is made, and so is any text with a URL without
    /// TLS.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().tls_server_name("locks.example.com");
    /// let client = builder.connect("rediss://127.0.0.1:16379").await?;
    /// # Ok(()) }
    /// ```
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.settings.tls_server_name = Some(name.into());
        self
    }
}
