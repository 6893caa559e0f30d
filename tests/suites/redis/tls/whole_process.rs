//! What TLS takes from the process: the authorities of its system, and the cryptography that its program has installed.
//!
//! Both are the same for all threads of a process. So each test here runs once more, alone in a process of its own.

use std::process::Stdio;

use distlock::Client;
use distlock_tests::Authority;
use rustls::crypto::{CryptoProvider, ring};
use tempfile::NamedTempFile;
use tokio::process::Command;

use super::{server, works};

/// Tells a process that it is the other one: the URL of its server.
const SERVER: &str = "DISTLOCK_TEST_TLS_SERVER";

/// Runs this test in another process that trusts `authority` as one of its system.
async fn alone(test: &str, url: &str, authority: &Authority) {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority.pem()).unwrap();
    let test = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let output = Command::new(std::env::current_exe().unwrap())
        .args([&test, "--exact", "--nocapture"])
        .env(SERVER, url)
        .env("SSL_CERT_FILE", file.path())
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
}

#[tokio::test]
async fn authority_of_the_system_is_trusted() {
    if let Ok(url) = std::env::var(SERVER) {
        return works(&Client::connect(&url).await.unwrap()).await;
    }
    let (server, authority) = server().await;
    let test = "authority_of_the_system_is_trusted";
    alone(test, &server.tls_url(), &authority).await;
}

#[tokio::test]
async fn cryptography_that_the_program_has_installed_stays() {
    if let Ok(url) = std::env::var(SERVER) {
        let mut provider = ring::default_provider();
        provider.cipher_suites.truncate(1);
        provider.install_default().unwrap();
        works(&Client::connect(&url).await.unwrap()).await;
        let installed = CryptoProvider::get_default().unwrap();
        assert_eq!(installed.cipher_suites.len(), 1);
        return;
    }
    let (server, authority) = server().await;
    let test = "cryptography_that_the_program_has_installed_stays";
    alone(test, &server.tls_url(), &authority).await;
}
