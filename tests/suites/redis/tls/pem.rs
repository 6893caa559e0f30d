//! Certificates and keys that cannot work: an error before anything is sent.

use distlock::{Builder, Client, Error};
use distlock_tests::Authority;
use tokio::net::TcpListener;

use super::{refused, trusting};

/// The URLs of a server, a cluster and Sentinels, without the address. Where only one of Sentinels and servers has TLS, the
/// certificates count as well.
const URLS: [[&str; 2]; 5] = [
    ["rediss://", ""],
    ["rediss+cluster://", ""],
    ["rediss+sentinel://", "/locks"],
    ["rediss+sentinel://", "/locks?sentinel_tls=false"],
    ["redis+sentinel://", "/locks?sentinel_tls=true"],
];

/// The error of a client that never reached a server, on one server, with Sentinels and on a cluster.
async fn refused_unsent(builder: Builder) -> String {
    let mut texts = Vec::new();
    for [scheme, path] in URLS {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{scheme}{}{path}", listener.local_addr().unwrap());
        tokio::select! {
            biased;
            connected = listener.accept() => panic!("{url}: {connected:?}"),
            error = refused(builder.clone(), &url) => {
                assert!(matches!(error, Error::InvalidConfig { .. }), "{url}: {error:?}");
                texts.push(error.to_string());
            }
        }
        assert_eq!(texts.last(), texts.first(), "{url}");
    }
    texts.swap_remove(0)
}

#[tokio::test]
async fn pem_without_a_certificate_or_with_another_key_is_refused_unsent() {
    let authority = Authority::new();
    let (own, other) = (authority.client(), authority.client());
    let text = refused_unsent(Client::builder().tls_ca_pem("")).await;
    assert!(
        text.contains("tls_ca_pem = a PEM without a certificate"),
        "{text}"
    );
    let text = refused_unsent(Client::builder().tls_ca_pem(own.key.as_str())).await;
    assert!(
        text.contains("tls_ca_pem = a PEM without a certificate"),
        "{text}"
    );
    let broken = authority.pem().replace("MII", "!!!");
    let text = refused_unsent(Client::builder().tls_ca_pem(broken)).await;
    assert!(text.contains("tls_ca_pem = "), "{text}");

    let with_client = |cert: &str, key: &str| trusting(&authority).tls_client_pem(cert, key);
    let text = refused_unsent(with_client("", &own.key)).await;
    assert!(
        text.contains("tls_client_pem = a PEM without a certificate"),
        "{text}"
    );
    let text = refused_unsent(with_client(&own.cert, "")).await;
    assert!(
        text.contains("tls_client_pem = a PEM without a private key"),
        "{text}"
    );
    let text = refused_unsent(with_client(&own.cert, &other.key)).await;
    assert!(text.contains("cannot be used together"), "{text}");
    assert!(!text.contains(other.key.lines().nth(1).unwrap()), "{text}");
}

#[test]
fn secrets_stay_out_of_debug_texts() {
    let own = Authority::new().client();
    let key = own.key.clone();
    let builder = Client::builder()
        .credentials("shop", "SECRET")
        .tls_client_pem(own.cert, own.key);
    for text in [format!("{builder:?}"), format!("{:#?}", builder.clone())] {
        assert!(text.contains("shop") && !text.contains("SECRET"), "{text}");
        assert!(!text.contains(key.lines().nth(1).unwrap()), "{text}");
        let bytes = format!("{:?}", &key.as_bytes()[..8]);
        assert!(!text.contains(bytes.trim_matches(['[', ']'])), "{text}");
    }
}
