//! Certificates of a client that change while it runs: in files, and by a function.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{Client, Error};
use distlock_tests::{
    Authority, Certificate, RedisCluster, RedisServer, SentinelSet, eventually_eq, lock_once,
};
use tempfile::TempDir;

use super::super::ms;
use super::{SOON, refused, server, trusting};

/// How long the first certificate of a test lives.
const LIVES: Duration = Duration::from_secs(10);

/// A server that asks clients for a certificate of this authority.
async fn asking(clients: &Authority) -> (RedisServer, Authority) {
    let servers = Authority::new();
    let builder = RedisServer::builder().mutual_tls(&servers.server(), clients);
    (builder.start().await, servers)
}

/// The files of a certificate and its key.
struct Files {
    _folder: TempDir,
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn of(certificate: &Certificate) -> Self {
        let folder = TempDir::new().unwrap();
        let files = Self {
            certificate: folder.path().join("client.pem"),
            key: folder.path().join("client.key"),
            _folder: folder,
        };
        files.replace(certificate);
        files
    }

    fn replace(&self, certificate: &Certificate) {
        write(&self.certificate, &certificate.cert);
        write(&self.key, &certificate.key);
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

/// Ends the connections until the server refuses the certificate with which the client comes back.
async fn refuses_what_is_expired(server: &RedisServer, client: &Client) {
    refuse_what_is_expired(&[server], client, "k").await;
}

/// Ends the connections of clients. Replicas, Sentinels and other nodes keep theirs.
async fn kill_clients(server: &RedisServer) {
    for client in server.client_list().await {
        let is_server = client.field("name").starts_with("sentinel-")
            || client.field("flags").contains(['S', 'M']);
        if !is_server && !client.is_harness() {
            let id = client.id().to_string();
            // It may have ended by itself.
            let _ended: Result<u64, _> = server.try_cli(&["CLIENT", "KILL", "ID", &id]).await;
        }
    }
}

/// The same of the servers that have a key.
async fn refuse_what_is_expired(servers: &[&RedisServer], client: &Client, key: &str) {
    let refused = || async {
        for server in servers {
            kill_clients(server).await;
        }
        let tried = client.lock(key).acquire().wait(Duration::ZERO).await;
        tried.is_err_and(|error| error.to_string().contains("CertificateExpired"))
    };
    eventually_eq(LIVES + SOON, "the certificate is expired", true, refused).await;
}

#[tokio::test]
async fn certificate_replaced_in_its_files_is_used_by_the_next_connection_after_the_old_one_expired()
 {
    let clients = Authority::new();
    let (server, servers) = asking(&clients).await;
    let files = Files::of(&clients.client_for(LIVES));
    let builder = trusting(&servers).tls_client_files(&files.certificate, &files.key);
    let client = builder.connect(&server.tls_url()).await.unwrap();
    lock_once(&client, "k").await;
    refuses_what_is_expired(&server, &client).await;
    files.replace(&clients.client());
    lock_once(&client, "k").await;
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn certificate_replaced_in_its_files_is_used_for_all_nodes_of_a_cluster_after_the_old_one_expired()
 {
    let authority = Authority::new();
    let builder = RedisCluster::builder().replicas(false);
    let cluster = builder.mutual_tls(&authority).start().await;
    let files = Files::of(&authority.client_for(LIVES));
    let builder = trusting(&authority).tls_client_files(&files.certificate, &files.key);
    let client = builder.connect(&cluster.tls_url()).await.unwrap();
    let mut keys = Vec::new();
    for node in 0..cluster.size() {
        keys.push(cluster.key_at(node, "k:").await);
    }
    for key in &keys {
        lock_once(&client, key).await;
    }
    for (node, key) in keys.iter().enumerate() {
        let node = [cluster.node(node)];
        refuse_what_is_expired(&node, &client, key).await;
        let error = client.lock(key).acquire().wait(Duration::ZERO).await;
        let text = error.unwrap_err().to_string();
        assert!(text.contains(&node[0].tls_addr().to_string()), "{text}");
    }
    files.replace(&authority.client());
    for key in &keys {
        lock_once(&client, key).await;
    }
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
async fn certificate_replaced_in_its_files_is_used_for_sentinels_and_servers_after_the_old_one_expired()
 {
    let authority = Authority::new();
    let builder = SentinelSet::builder().mutual_tls(&authority);
    let set = builder.start().await;
    let files = Files::of(&authority.client_for(LIVES));
    let builder = trusting(&authority).tls_client_files(&files.certificate, &files.key);
    let client = builder.connect(&set.tls_url()).await.unwrap();
    lock_once(&client, "k").await;
    let servers = [0, 1, 2].map(|at| [set.server(at), set.sentinel(at)]);
    refuse_what_is_expired(&servers.concat(), &client, "k").await;
    files.replace(&authority.client());
    let works = || async { client.lock("k").acquire().wait(SOON).await.is_ok() };
    eventually_eq(SOON, "it works again", true, works).await;
    // The Sentinels are heard again.
    set.fail_over().await;
    eventually_eq(2 * SOON, "the new master", true, works).await;
}

in_real_time!(
    CONNECT;
    function_is_asked_for_the_certificate_of_each_connection_and_its_panic_ends_one_only,
    function_that_never_gives_a_certificate_is_named_by_the_error_of_the_connection,
);

/// For clients that cannot connect: each of them goes on for so long.
const CONNECT: Duration = ms(1_000);

async fn function_is_asked_for_the_certificate_of_each_connection_and_its_panic_ends_one_only() {
    let clients = Authority::new();
    let (server, servers) = asking(&clients).await;
    let (asked, panics) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let (count, fails) = (Arc::clone(&asked), Arc::clone(&panics));
    let own = clients.client();
    let builder = trusting(&servers).connect_timeout(CONNECT);
    let builder = builder
        .unavailable_after(ms(500))
        .tls_client_pem_from(move || {
            count.fetch_add(1, Ordering::Relaxed);
            assert!(!fails.load(Ordering::Relaxed), "the vault is sealed");
            let own = own.clone();
            async { Ok::<_, std::io::Error>((own.cert, own.key)) }
        });
    panics.store(true, Ordering::Relaxed);
    let error = builder
        .clone()
        .connect(&server.tls_url())
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Unreachable { .. }), "{text}");
    assert!(
        text.contains("no client certificate") && text.contains("the vault is sealed"),
        "{text}"
    );
    panics.store(false, Ordering::Relaxed);
    let client = builder.connect(&server.tls_url()).await.unwrap();
    let before = asked.load(Ordering::Relaxed);
    panics.store(true, Ordering::Relaxed);
    assert!(server.kill_clients("normal").await >= 1);
    let again = || async { asked.load(Ordering::Relaxed) > before };
    eventually_eq(SOON, "asked again", true, again).await;
    panics.store(false, Ordering::Relaxed);
    let works = || async { client.lock("k").acquire().wait(SOON).await.is_ok() };
    eventually_eq(SOON, "it works again", true, works).await;
}

async fn function_that_never_gives_a_certificate_is_named_by_the_error_of_the_connection() {
    let (server, authority) = server().await;
    let pending = std::future::pending::<Result<(String, String), std::io::Error>>;
    let builder = trusting(&authority).connect_timeout(CONNECT);
    let builder = builder.tls_client_pem_from(pending);
    let text = builder
        .connect(&server.tls_url())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("the function that gives certificates has not finished"),
        "{text}"
    );
}

#[tokio::test]
async fn authority_replaced_in_its_file_is_trusted_by_the_next_connection() {
    let (mut server, first) = server().await;
    let second = Authority::new();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ca.pem");
    write(&file, first.pem());
    let url = format!("{}?tls_ca_file={}", server.tls_url(), file.display());
    let client = Client::connect(&url).await.unwrap();
    lock_once(&client, "k").await;
    server.renew_certificate(&second.server()).await;
    write(&file, second.pem());
    assert!(server.kill_clients("normal").await >= 1);
    lock_once(&client, "k").await;
    // The client goes on when a file is just being written.
    write(&file, "half a file");
    assert!(server.kill_clients("normal").await >= 1);
    let told = || async {
        let tried = client.lock("k").acquire().wait(ms(200)).await;
        tried.is_err_and(|error| error.to_string().contains(&file.display().to_string()))
    };
    eventually_eq(SOON, "told with the path", true, told).await;
    write(&file, second.pem());
    let works = || async { client.lock("k").acquire().wait(SOON).await.is_ok() };
    eventually_eq(SOON, "it works again", true, works).await;
}

/// The file may come from the URL. It must not have the program trust more than it wants to.
#[tokio::test]
async fn authority_that_the_program_gives_counts_and_the_file_does_not() {
    let (server, authority) = server().await;
    let strange = Authority::new();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ca.pem");
    let url = format!("{}?tls_ca_file={}", server.tls_url(), file.display());
    let given = |authority: &Authority| {
        let pem = authority.pem().to_owned();
        let by_function = Client::builder().tls_ca_pem_from(move || {
            let pem = pem.clone();
            async move { Ok::<_, std::io::Error>(pem) }
        });
        [trusting(authority), by_function]
    };
    write(&file, strange.pem());
    for builder in given(&authority) {
        let client = builder.connect(&url).await.expect("the one of the file");
        lock_once(&client, "k").await;
    }
    write(&file, authority.pem());
    for builder in given(&strange) {
        let error = refused(builder, &url).await;
        assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    }
}

#[tokio::test]
async fn certificate_that_the_program_gives_counts_and_the_files_do_not() {
    let clients = Authority::new();
    let (server, servers) = asking(&clients).await;
    let (own, strange) = (clients.client(), Authority::new().client());
    let given = |files: &Certificate, given: &Certificate| {
        let files = Files::of(files);
        let builder = trusting(&servers).tls_client_files(&files.certificate, &files.key);
        let (cert, key) = (given.cert.clone(), given.key.clone());
        let by_function = builder.clone().tls_client_pem_from(move || {
            let pem = (cert.clone(), key.clone());
            async move { Ok::<_, std::io::Error>(pem) }
        });
        let by_value = builder.tls_client_pem(given.cert.clone(), given.key.clone());
        (files, [by_value, by_function])
    };
    let (_files, builders) = given(&strange, &own);
    for builder in builders {
        let client = builder.connect(&server.tls_url()).await.expect("the files");
        lock_once(&client, "k").await;
    }
    let (_files, builders) = given(&own, &strange);
    for builder in builders {
        let error = refused(builder, &server.tls_url()).await;
        assert!(matches!(error, Error::LoginDenied { .. }), "{error}");
    }
}

#[tokio::test]
async fn file_that_is_missing_or_of_another_key_is_refused_with_its_path_when_the_client_is_made() {
    let authority = Authority::new();
    let files = Files::of(&authority.client());
    let missing = Path::new("/no/such/file.pem");
    write(&files.key, &authority.client().key);
    let url = "rediss://127.0.0.1:1";
    for (builder, says) in [
        (
            trusting(&authority).tls_client_files(missing, &files.key),
            "/no/such/file.pem",
        ),
        (
            trusting(&authority).tls_client_files(&files.certificate, &files.key),
            "client.key, a certificate and a key that cannot be used together",
        ),
        (
            Client::builder().tls_ca_file(missing),
            "tls_ca_file = /no/such/file.pem",
        ),
        (
            Client::builder().tls_ca_file(&files.key),
            "a PEM without a certificate",
        ),
    ] {
        let error = refused(builder, url).await;
        let text = error.to_string();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{text}");
        assert!(text.contains(says), "{text}");
    }
}
