//! The authorities that a client trusts if the user names none: those of the system, and with a feature those of Mozilla as well.
//!
//! Both, because another crate may turn the feature on: a program whose servers have certificates of an authority that is in the
//! system's store alone still connects.

use rustls::RootCertStore;

use crate::error::Error;

/// The default authorities. Those of the system that cannot be read are reported, and the rest counts.
pub(super) fn default_roots() -> Result<RootCertStore, Error> {
    let found = system::find();
    let mut roots = of_mozilla();
    let (added, ignored) = roots.add_parsable_certificates(found.certificates);
    if roots.is_empty() {
        let wrong = if found.wrong.is_empty() {
            String::new()
        } else {
            format!(": {}", found.wrong.join("; "))
        };
        return Err(Error::InvalidConfig {
            setting: "tls_ca_pem",
            value: format!(
                "none, and no certificate of an authority was found at {}{wrong}; install the system's certificates, set \
                 `tls_ca_file`, or point the variables SSL_CERT_FILE and SSL_CERT_DIR at them",
                found.stores
            ),
            expected: String::new(),
        });
    }
    if ignored > 0 || !found.wrong.is_empty() {
        crate::telemetry::broken_authorities(added, ignored, &found.wrong.join("; "));
    }
    Ok(roots)
}

#[cfg(feature = "tls-rustls-webpki-roots")]
fn of_mozilla() -> RootCertStore {
    webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect()
}

#[cfg(not(feature = "tls-rustls-webpki-roots"))]
fn of_mozilla() -> RootCertStore {
    RootCertStore::empty()
}

/// Where the system keeps its authorities.
mod system {
    use std::collections::HashSet;
    use std::env;
    use std::fs;
    use std::path::{Path, PathBuf};

    use rustls::pki_types::CertificateDer;
    use rustls_native_certs::{CertificateResult, load_certs_from_paths, load_native_certs};

    /// What was found of the system's authorities.
    #[derive(Default)]
    pub(super) struct Found {
        pub(super) certificates: Vec<CertificateDer<'static>>,
        /// What could not be read, each with its path.
        pub(super) wrong: Vec<String>,
        /// Where they were looked for.
        pub(super) stores: String,
    }

    pub(super) fn find() -> Found {
        let mut found = Found::default();
        let stores = stores();
        if stores.is_empty() {
            found.stores = "the store of the system".to_owned();
            found.take(load_native_certs(), None);
        } else {
            let names = stores.iter().map(|store| store.display().to_string());
            found.stores = names.collect::<Vec<_>>().join(", ");
            for file in found.files(stores) {
                found.take(load_certs_from_paths(Some(&file), None), Some(&file));
            }
        }
        found
            .certificates
            .sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
        found.certificates.dedup();
        found
    }

    /// The stores that the environment names, or those of the distribution. Systems with a store of another kind have none.
    fn stores() -> Vec<PathBuf> {
        let mut stores: Vec<PathBuf> = env::var_os("SSL_CERT_FILE")
            .map(Into::into)
            .into_iter()
            .collect();
        if let Some(folders) = env::var_os("SSL_CERT_DIR") {
            stores.extend(env::split_paths(&folders));
        }
        stores.retain(|store| !store.as_os_str().is_empty());
        #[cfg(all(unix, not(target_vendor = "apple")))]
        if stores.is_empty() {
            let likely = openssl_probe::probe();
            stores.extend(likely.cert_file);
            stores.extend(likely.cert_dir);
        }
        stores
    }

    impl Found {
        /// The files in these stores, each once: a folder has links to most of its files.
        fn files(&mut self, stores: Vec<PathBuf>) -> Vec<PathBuf> {
            let mut files = Vec::new();
            let mut seen = HashSet::new();
            for store in stores {
                let inside = match (store.is_dir(), fs::read_dir(&store)) {
                    (true, Ok(entries)) => entries.flatten().map(|entry| entry.path()).collect(),
                    (true, Err(error)) => {
                        self.wrong.push(format!("{}: {error}", store.display()));
                        continue;
                    }
                    (false, _) => vec![store],
                };
                for file in inside {
                    match fs::canonicalize(&file) {
                        // Folders often name each file a second time, by a link with a hash.
                        Ok(file) if file.is_dir() || !seen.insert(file.clone()) => {}
                        Ok(file) => files.push(file),
                        Err(error) => self.wrong.push(format!("{}: {error}", file.display())),
                    }
                }
            }
            files
        }

        fn take(&mut self, read: CertificateResult, path: Option<&Path>) {
            self.certificates.extend(read.certs);
            let path = path
                .map(|path| path.display().to_string())
                .unwrap_or_default();
            self.wrong
                .extend(read.errors.iter().map(|error| format!("{path}: {error}")));
        }
    }
}
