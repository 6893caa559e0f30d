//! Refuses settings that cannot have an effect with the servers of the URL. Who sets an authority believes that the connection
//! is encrypted, so silence would mislead.

use std::path::Path;

use crate::backend::redis::connection::Address;
use crate::backend::redis::connection::url::{Target, Tls, Url};
use crate::config::Config;
use crate::config::address_map::AddressMap;
use crate::error::Error;

/// What errors call certificates that are no files: their text is long, and a key is a secret.
#[cfg(feature = "_tls")]
const PEM: &str = "a PEM";

pub(super) fn refuse(url: &Url, config: &Config) -> Result<(), Error> {
    let with_tls = match &url.target {
        Target::Sentinel { tls, .. } if *tls != Tls::Off => *tls,
        _ => url.tls,
    };
    match (with_tls, &url.target) {
        (
            Tls::Off,
            Target::Server {
                address: Address::Unix(_),
                ..
            },
        ) => {
            let expected = "none, because the URL names a socket, which has no TLS";
            refuse_some(tls_setting(config), expected)?;
        }
        (Tls::Off, _) => {
            let expected = "a URL with TLS, such as `rediss://..`; or leave the setting out";
            refuse_some(tls_setting(config), expected)?;
        }
        (Tls::Insecure, _) => {
            let expected = "a URL without `#insecure`, which accepts the certificate of any authority; or leave the setting out";
            refuse_some(authorities(config), expected)?;
        }
        (Tls::Verified, _) => {}
    }
    if !matches!(url.target, Target::Sentinel { .. }) {
        let file = config.sentinel_password_file.as_deref();
        let expected = "a URL of Sentinels, `redis+sentinel://..`; or leave the setting out, or write `password_file`";
        refuse_some(
            file.map(|path| ("sentinel_password_file", shown(path))),
            expected,
        )?;
    }
    if matches!(url.target, Target::Server { .. }) {
        let map = config.address_map.as_ref().map(|map| match map {
            AddressMap::File(path) => ("map_file", shown(path)),
            AddressMap::Asked(_) => ("map_address", "a function".to_owned()),
        });
        let expected = "a URL of a cluster or of Sentinels, whose servers announce addresses; write the address that is reached \
                        into this URL, and leave the setting out";
        refuse_some(map, expected)?;
    }
    Ok(())
}

type Setting = (&'static str, String);

fn refuse_some(setting: Option<Setting>, expected: &str) -> Result<(), Error> {
    match setting {
        Some((setting, value)) => Err(Error::invalid_config(setting, value, expected)),
        None => Ok(()),
    }
}

/// The first setting that is for TLS alone.
fn tls_setting(config: &Config) -> Option<Setting> {
    let files = &config.tls.files;
    #[cfg(feature = "_tls")]
    if config.tls.ca_pem.is_none() && config.tls.client_pem.is_some() {
        return Some(("tls_client_pem", PEM.to_owned()));
    }
    authorities(config)
        .or_else(|| file("tls_client_cert_file", files.client_cert.as_deref()))
        .or_else(|| {
            let name = config.tls.server_name.as_ref();
            name.map(|name| ("tls_server_name", name.clone()))
        })
}

fn authorities(config: &Config) -> Option<Setting> {
    #[cfg(feature = "_tls")]
    if config.tls.ca_pem.is_some() {
        return Some(("tls_ca_pem", PEM.to_owned()));
    }
    file("tls_ca_file", config.tls.files.ca.as_deref())
}

fn file(setting: &'static str, path: Option<&Path>) -> Option<Setting> {
    path.map(|path| (setting, shown(path)))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
