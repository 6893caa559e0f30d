//! The certificates of a client and of the authorities that it trusts: values, files, or a function that is asked.

use std::fs;
use std::path::{Path, PathBuf};

use crate::backend::{Fault, cause};
use crate::config::Config;
use crate::config::pem::{ClientPem, Pem};
use crate::config::source::Source;
use crate::config::tls::TlsFiles;
use crate::error::Error;

/// Where the certificates come from.
#[derive(Debug)]
pub(super) struct Certificates {
    authorities: Option<From<Pem, PathBuf>>,
    own: Option<From<ClientPem, OwnFiles>>,
}

#[derive(Debug)]
enum From<V, F> {
    Source(Source<V>),
    Files(F),
}

#[derive(Debug)]
struct OwnFiles {
    certificate: PathBuf,
    key: PathBuf,
}

/// The certificates of one connection.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) authorities: Option<Pem>,
    pub(super) own: Option<ClientPem>,
}

impl Certificates {
    pub(super) fn of(config: &Config) -> Self {
        let TlsFiles {
            ca,
            client_cert,
            client_key,
        } = config.tls.files.clone();
        let own = client_cert
            .zip(client_key)
            .map(|(certificate, key)| OwnFiles { certificate, key });
        Self {
            authorities: from(config.tls.ca_pem.clone(), ca),
            own: from(config.tls.client_pem.clone(), own),
        }
    }

    /// Whether there are authorities of the user's.
    pub(super) fn has_authorities(&self) -> bool {
        self.authorities.is_some()
    }

    /// Whether all connections have the same ones.
    pub(super) fn are_fixed(&self) -> bool {
        let are_fixed = matches!(
            self.authorities,
            None | Some(From::Source(Source::Fixed(_)))
        );
        are_fixed && matches!(self.own, None | Some(From::Source(Source::Fixed(_))))
    }

    /// The certificates of this moment; none if a function has to be asked.
    pub(super) fn now(&self) -> Result<Option<Read>, Error> {
        let authorities = match &self.authorities {
            None => None,
            Some(From::Source(Source::Fixed(pem))) => Some(pem.clone()),
            Some(From::Source(Source::Asked(_))) => return Ok(None),
            Some(From::Files(path)) => Some(file("tls_ca_file", path)?),
        };
        let own = match &self.own {
            None => None,
            Some(From::Source(Source::Fixed(own))) => Some(own.clone()),
            Some(From::Source(Source::Asked(_))) => return Ok(None),
            Some(From::Files(files)) => Some(files.read()?),
        };
        Ok(Some(Read { authorities, own }))
    }

    /// The certificates of the next connection.
    pub(super) async fn read(&self) -> Result<Read, Fault> {
        let authorities = match &self.authorities {
            None => None,
            Some(From::Source(source)) => {
                let answer = source.get().await;
                Some(answer.map_err(|error| unanswered("certificates of authorities", &*error))?)
            }
            // Read here, and not by tokio's pool of blocking threads, which the program may have used up. The file is small.
            Some(From::Files(path)) => {
                Some(file("tls_ca_file", path).map_err(|error| unusable(&error))?)
            }
        };
        let own = match &self.own {
            None => None,
            Some(From::Source(source)) => {
                let answer = source.get().await;
                Some(answer.map_err(|error| unanswered("client certificate", &*error))?)
            }
            Some(From::Files(files)) => Some(files.read().map_err(|error| unusable(&error))?),
        };
        Ok(Read { authorities, own })
    }
}

impl Certificates {
    /// The error of certificates that cannot be used, with the file that they are in.
    pub(super) fn with_file(&self, error: Error) -> Error {
        let Error::InvalidConfig {
            setting,
            value,
            expected,
        } = error
        else {
            return error;
        };
        match (setting, &self.authorities, &self.own) {
            ("tls_ca_pem", Some(From::Files(path)), _) => Error::InvalidConfig {
                setting: "tls_ca_file",
                value: format!("{}, {value}", path.display()),
                expected,
            },
            ("tls_client_pem", _, Some(From::Files(files))) => Error::InvalidConfig {
                setting: "tls_client_cert_file",
                value: format!(
                    "{} with {}, {value}",
                    files.certificate.display(),
                    files.key.display()
                ),
                expected,
            },
            _ => Error::InvalidConfig {
                setting,
                value,
                expected,
            },
        }
    }
}

impl OwnFiles {
    fn read(&self) -> Result<ClientPem, Error> {
        Ok(ClientPem {
            certificate: file("tls_client_cert_file", &self.certificate)?,
            key: file("tls_client_key_file", &self.key)?,
        })
    }
}

/// A value or a function counts more than files.
fn from<V, F>(source: Option<Source<V>>, files: Option<F>) -> Option<From<V, F>> {
    source.map(From::Source).or(files.map(From::Files))
}

fn file(setting: &'static str, path: &Path) -> Result<Pem, Error> {
    let read = fs::read(path).map(Pem::new);
    read.map_err(|error| {
        let value = format!("{}, which cannot be read: {error}", path.display());
        Error::invalid_config(setting, value, "")
    })
}

/// Certificates that cannot be used at this moment. The next connection may find others.
pub(super) fn unusable(error: &Error) -> Fault {
    Fault::NotNow(cause(format!("no TLS for the next connection: {error}")))
}

fn unanswered(what: &str, error: &dyn std::error::Error) -> Fault {
    Fault::NotNow(cause(format!("no {what} for the next connection: {error}")))
}
