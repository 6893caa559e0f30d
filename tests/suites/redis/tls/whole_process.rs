//! What TLS takes from the process: the authorities of its system, and the cryptography that its program has installed.
//!
//! Both are the same for all threads of a process. So each test here runs once more, alone in another process.

use std::path::Path;
use std::process::Stdio;

use distlock::{Client, Error};
use distlock_tests::{Authority, lock_once};
use rustls::crypto::{CryptoProvider, ring};
use tempfile::NamedTempFile;
use tokio::process::Command;

use super::server;

/// Tells a process that it is the other one: the URL of its server.
const SERVER: &str = "DISTLOCK_TEST_TLS_SERVER";

/// Runs this test in another process that trusts `authority` as one of its system. Returns what it has written.
async fn alone(test: &str, url: &str, authority: &Authority) {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority.pem()).unwrap();
    let _written = with_store(test, url, file.path()).await;
}

/// Runs this test in another process, whose system has its authorities at this place. Returns what it has written.
async fn with_store(test: &str, url: &str, store: &Path) -> String {
    let test = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let variable = if store.is_dir() {
        "SSL_CERT_DIR"
    } else {
        "SSL_CERT_FILE"
    };
    let output = Command::new(std::env::current_exe().unwrap())
        .args([&test, "--exact", "--nocapture"])
        .env(SERVER, url)
        .env_remove("SSL_CERT_DIR")
        .env_remove("SSL_CERT_FILE")
        .env(variable, store)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let ran = output.status.success() && out.contains("1 passed");
    assert!(ran, "{}\n{out}\n{err}", output.status);
    out.into_owned()
}

#[tokio::test]
async fn authority_of_the_system_is_trusted() {
    if let Ok(url) = std::env::var(SERVER) {
        return lock_once(&Client::connect(&url).await.unwrap(), "k").await;
    }
    let (server, authority) = server().await;
    let test = "authority_of_the_system_is_trusted";
    alone(test, &server.tls_url(), &authority).await;
}

#[tokio::test]
async fn broken_and_missing_files_of_the_systems_store_are_one_warning_and_the_rest_counts() {
    if let Ok(url) = std::env::var(SERVER) {
        tracing_subscriber::fmt().with_ansi(false).init();
        return lock_once(&Client::connect(&url).await.unwrap(), "k").await;
    }
    let (server, authority) = server().await;
    let folder = tempfile::TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("good.pem"), authority.pem()).unwrap();
    let body = "-----BEGIN CERTIFICATE-----\nMAo=\n-----END CERTIFICATE-----\n";
    std::fs::write(path("no_certificate.pem"), body).unwrap();
    std::fs::write(path("broken.pem"), body.replace("MAo=", "M!!o=")).unwrap();
    std::os::unix::fs::symlink("/no/such/file", path("dangling.pem")).unwrap();
    let test = "broken_and_missing_files_of_the_systems_store_are_one_warning_and_the_rest_counts";
    let written = with_store(test, &server.tls_url(), folder.path()).await;
    let mut lines = written
        .lines()
        .filter(|line| line.contains("store of authorities"));
    let line = lines.next().expect("a warning");
    assert!(
        line.contains("WARN") && line.contains("used=1 refused=1"),
        "{line}"
    );
    assert!(
        line.contains("broken.pem: ") && line.contains("dangling.pem: "),
        "{line}"
    );
    assert_eq!(lines.next(), None);
}

#[tokio::test]
async fn store_of_the_system_is_read_once_for_sentinels_and_servers() {
    if let Ok(url) = std::env::var(SERVER) {
        tracing_subscriber::fmt().with_ansi(false).init();
        drop(Client::connect_lazy(&url).unwrap());
        return;
    }
    let (_server, authority) = server().await;
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("good.pem"), authority.pem()).unwrap();
    std::os::unix::fs::symlink("/no/such/file", folder.path().join("dangling.pem")).unwrap();
    let test = "store_of_the_system_is_read_once_for_sentinels_and_servers";
    for url in [
        "rediss+sentinel://127.0.0.1:1/locks",
        "rediss+sentinel://127.0.0.1:1/locks?sentinel_tls=false",
        "redis+sentinel://127.0.0.1:1/locks?sentinel_tls=true",
    ] {
        let written = with_store(test, url, folder.path()).await;
        let warnings = written.matches("store of authorities").count();
        assert_eq!(warnings, 1, "{url}: {written}");
    }
}

#[tokio::test]
async fn empty_store_of_the_system_is_an_error_at_once_that_names_the_places() {
    if let Ok(url) = std::env::var(SERVER) {
        for error in [
            Client::connect(&url).await.unwrap_err(),
            Client::connect_lazy(&url).unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(matches!(error, Error::InvalidConfig { .. }), "{text}");
            let place = std::env::var("SSL_CERT_DIR").unwrap();
            assert!(
                text.contains(&place) && text.contains("`tls_ca_file`"),
                "{text}"
            );
        }
        return;
    }
    let (server, _authority) = server().await;
    let folder = tempfile::TempDir::new().unwrap();
    let test = "empty_store_of_the_system_is_an_error_at_once_that_names_the_places";
    with_store(test, &server.tls_url(), folder.path()).await;
}

#[tokio::test]
async fn cryptography_that_the_program_has_installed_stays() {
    if let Ok(url) = std::env::var(SERVER) {
        // Ours does not ask for it, and installs none.
        lock_once(&Client::connect(&url).await.unwrap(), "k").await;
        assert!(CryptoProvider::get_default().is_none());
        let mut provider = ring::default_provider();
        provider.cipher_suites.truncate(1);
        provider.install_default().unwrap();
        lock_once(&Client::connect(&url).await.unwrap(), "k").await;
        let installed = CryptoProvider::get_default().unwrap();
        assert_eq!(installed.cipher_suites.len(), 1);
        return;
    }
    let (server, authority) = server().await;
    let test = "cryptography_that_the_program_has_installed_stays";
    alone(test, &server.tls_url(), &authority).await;
}
