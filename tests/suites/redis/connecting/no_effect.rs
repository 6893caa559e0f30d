//! Settings that cannot have an effect with the servers of the URL are refused, and not passed over in silence.

use distlock::{Builder, Client, Error, Settings};
use distlock_tests::Authority;

/// The setting that a client is refused for, and the text of the error.
fn refused(builder: Builder, url: &str) -> (&'static str, String) {
    let error = builder.connect_lazy(url).expect_err(url);
    let text = error.to_string();
    match error {
        Error::InvalidConfig { setting, .. } => (setting, text),
        _ => panic!("{url}: {text}"),
    }
}

const PLAIN: [&str; 3] = [
    "redis://127.0.0.1:1",
    "redis+cluster://127.0.0.1:1",
    "redis+sentinel://127.0.0.1:1/locks",
];

#[tokio::test]
async fn setting_of_tls_beside_a_url_without_tls_is_refused_with_the_scheme_to_write() {
    let own = Authority::new().client();
    let pem = || Client::builder().tls_ca_pem(Authority::new().pem());
    let by_word = |word: &str, value: &str| {
        let mut settings = Settings::default();
        settings.set(word, value).unwrap();
        Client::builder().settings(settings)
    };
    let with = Client::builder;
    for (builder, setting, value) in [
        (pem(), "tls_ca_pem", "a PEM"),
        (
            with().tls_ca_pem_from(async || Ok::<_, std::io::Error>("")),
            "tls_ca_pem",
            "a PEM",
        ),
        (
            with().tls_client_pem(own.cert.as_str(), own.key.as_str()),
            "tls_client_pem",
            "a PEM",
        ),
        (with().tls_ca_file("/ca.pem"), "tls_ca_file", "/ca.pem"),
        (by_word("tls_ca_file", "/ca.pem"), "tls_ca_file", "/ca.pem"),
        (
            with().tls_client_files("/own.pem", "/own.key"),
            "tls_client_cert_file",
            "/own.pem",
        ),
        (
            by_word("tls_server_name", "locks.example"),
            "tls_server_name",
            "locks.example",
        ),
    ] {
        for url in PLAIN {
            let (named, text) = refused(builder.clone(), url);
            assert_eq!(named, setting, "{url}: {text}");
            let says = format!("{setting} = {value}: expected a URL with TLS");
            assert!(
                text.contains(&says) && text.contains("`rediss://..`"),
                "{text}"
            );
        }
        let (named, text) = refused(builder, "unix:///run/redis.sock");
        assert_eq!(named, setting, "{text}");
        assert!(text.contains("a socket, which has no TLS"), "{text}");
    }
    let in_url = "redis://127.0.0.1:1?tls_ca_file=/ca.pem";
    assert_eq!(refused(with(), in_url).0, "tls_ca_file");
    // Where the Sentinels alone have TLS, or the servers alone, the certificates count.
    for url in [
        "redis+sentinel://127.0.0.1:1/locks?sentinel_tls=true",
        "rediss+sentinel://127.0.0.1:1/locks?sentinel_tls=false",
        "valkeys://127.0.0.1:1",
    ] {
        drop(pem().connect_lazy(url).expect(url));
    }
}

#[tokio::test]
async fn authority_beside_a_url_that_trusts_everybody_is_refused() {
    for url in [
        "rediss://127.0.0.1:1#insecure",
        "redis+sentinel://127.0.0.1:1/locks?sentinel_tls=true#insecure",
    ] {
        let builder = Client::builder().tls_ca_file("/ca.pem");
        let (setting, text) = refused(builder, url);
        assert_eq!(setting, "tls_ca_file", "{text}");
        assert!(text.contains("without `#insecure`"), "{text}");
    }
}

#[tokio::test]
async fn setting_of_sentinels_or_of_announced_addresses_beside_one_server_is_refused() {
    let with = Client::builder;
    for (builder, setting) in [
        (
            with().sentinel_password_file("/p"),
            "sentinel_password_file",
        ),
        (with().map_file("/map"), "map_file"),
        (with().map_address(|_, _| None), "map_address"),
    ] {
        let (named, text) = refused(builder.clone(), "redis://127.0.0.1:1");
        assert_eq!(named, setting, "{text}");
        assert!(text.contains("leave the setting out"), "{text}");
        assert_eq!(refused(builder, "unix:///run/redis.sock").0, setting);
    }
    let file = with().sentinel_password_file("/p");
    assert_eq!(
        refused(file.clone(), "redis+cluster://127.0.0.1:1").0,
        "sentinel_password_file"
    );
    let sentinels = "redis+sentinel://127.0.0.1:1/locks";
    drop(file.connect_lazy(sentinels).unwrap());
    for url in [sentinels, "redis+cluster://127.0.0.1:1"] {
        let mapped = with().map_address(|_, _| None).connect_lazy(url);
        drop(mapped.expect(url));
    }
}
