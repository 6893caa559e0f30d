//! Features for rustls that another crate of a program turns on: none takes trust or cryptography away.
//!
//! Both are the same for all threads of a process. So each test runs once more, alone in another process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::path::Path;
use std::process::Stdio;

use distlock::Client;
use distlock_tests::{Authority, RedisServer};
use rustls::crypto::ring;
use tempfile::TempDir;
use tokio::process::Command;

/// Tells a process that it is the other one: the URL of its server.
const SERVER: &str = "DISTLOCK_TEST_TLS_SERVER";

/// Acquires and releases once.
async fn works(url: &str) {
    let client = Client::connect(url).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// Runs this test in another process, whose system has its authorities in this file or folder.
async fn alone(test: &str, url: &str, variable: &str, store: &Path) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(SERVER, url)
        .env_remove("SSL_CERT_DIR")
        .env_remove("SSL_CERT_FILE")
        .env(variable, store)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    let ran = output.status.success() && out.contains("1 passed");
    assert!(ran, "{}\n{out}\n{err}", output.status);
}

/// A server, and a folder with the file `ca.pem` of its authority.
async fn server() -> (RedisServer, TempDir) {
    let authority = Authority::new();
    let builder = RedisServer::builder().tls(&authority.server());
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
    (builder.start().await, folder)
}

#[tokio::test]
async fn authority_of_the_system_is_trusted_beside_those_of_mozilla() {
    if let Ok(url) = std::env::var(SERVER) {
        return works(&url).await;
    }
    let (server, folder) = server().await;
    let test = "authority_of_the_system_is_trusted_beside_those_of_mozilla";
    let file = folder.path().join("ca.pem");
    alone(test, &server.tls_url(), "SSL_CERT_FILE", &file).await;
}

#[tokio::test]
async fn system_without_authorities_has_those_of_mozilla() {
    if let Ok(url) = std::env::var(SERVER) {
        drop(Client::connect_lazy(&url).unwrap());
        return;
    }
    let empty = TempDir::new().unwrap();
    let test = "system_without_authorities_has_those_of_mozilla";
    alone(test, "rediss://127.0.0.1:1", "SSL_CERT_DIR", empty.path()).await;
}

#[tokio::test]
async fn cryptography_of_the_program_is_used_beside_that_of_a_feature() {
    if let Ok(url) = std::env::var(SERVER) {
        // The program has installed none yet.
        works(&url).await;
        let mut provider = ring::default_provider();
        provider.cipher_suites.clear();
        provider.install_default().unwrap();
        let error = Client::connect(&url).await.unwrap_err();
        assert!(error.to_string().contains("cryptography"), "{error}");
        return;
    }
    let (server, folder) = server().await;
    let test = "cryptography_of_the_program_is_used_beside_that_of_a_feature";
    let file = folder.path().join("ca.pem");
    alone(test, &server.tls_url(), "SSL_CERT_FILE", &file).await;
}
