//! The client of the server that the command line names.

use std::fs;
use std::time::Duration;

use distlock::{Builder, Client};

use crate::args::Server;
use crate::exit::Failed;

/// Connects, with these settings beside those of the command line.
pub(crate) async fn connect(
    server: &Server,
    with: impl FnOnce(Builder) -> Builder,
) -> Result<Client, Failed> {
    let Some(url) = server.url() else {
        return Err(Failed::usage(
            "no server: give --url or the variable REDIS_URL, e.g. redis://127.0.0.1:6379",
        ));
    };
    if url.ends_with("#insecure") {
        return Err(Failed::usage(
            "`#insecure`: this program always checks the server's certificate. Give the authorities that have signed it by \
             --tls-ca, or the address without TLS.",
        ));
    }
    let is_tls = url.starts_with("rediss") || server.tls_ca.is_some();
    if is_tls && cfg!(not(feature = "tls")) {
        return Err(Failed::usage(
            "this program was built without TLS: build it again with its defaults",
        ));
    }
    let mut builder = Client::builder()
        // Nobody reads the log of the library here.
        .warn_after(Duration::MAX)
        .settings(server.settings.0.clone());
    if let Some(file) = &server.tls_ca {
        let pem = fs::read(file)
            .map_err(|error| Failed::usage(format!("--tls-ca {}: {error}", file.display())))?;
        builder = with_ca(builder, pem)?;
    }
    Ok(with(builder).connect(url).await?)
}

#[cfg(feature = "tls")]
fn with_ca(builder: Builder, pem: Vec<u8>) -> Result<Builder, Failed> {
    Ok(builder.tls_ca_pem(pem))
}

#[cfg(not(feature = "tls"))]
fn with_ca(builder: Builder, _pem: Vec<u8>) -> Result<Builder, Failed> {
    Ok(builder)
}
