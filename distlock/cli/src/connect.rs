//! The client of the server that the command line names.

use std::time::Duration;

use distlock::{Builder, Client, Settings};

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
    let url = url.trim();
    if url.to_ascii_lowercase().ends_with("#insecure") {
        return Err(Failed::usage(
            "`#insecure`: this program always checks the server's certificate. Give the authorities that have signed it by \
             --tls-ca-file, or the address without TLS.",
        ));
    }
    let settings = &server.settings.0;
    let has_tls = ["rediss", "valkeys"]
        .iter()
        .any(|scheme| url.starts_with(scheme));
    if has_tls && cfg!(not(feature = "tls")) {
        return Err(Failed::usage(
            "this program was built without TLS: build it again with its defaults",
        ));
    }
    let builder = Client::builder()
        // Nobody reads the log of the library here.
        .warn_after(Duration::MAX)
        // After it, so that the command line decides.
        .settings(settings.clone());
    Ok(with(builder).connect(url).await?)
}

/// The setting `max_hold` of the URL. `None` if the URL has none, or has it in a form that only the library reads.
pub(crate) fn max_hold(server: &Server) -> Option<Duration> {
    let words = server.url()?.trim().split(['?', '&', '#']).skip(1);
    let mut words = words.filter_map(|word| word.split_once('='));
    let (_, time) = words.find(|(name, _)| name.eq_ignore_ascii_case("max_hold"))?;
    let mut settings = Settings::default();
    settings.set("max_hold", time).ok()?;
    settings.max_hold
}
