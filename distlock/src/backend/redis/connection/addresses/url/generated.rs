//! Tests: URLs of many forms.

use proptest::prelude::*;
use proptest::sample::select;

use super::tests::{read, tcp};
use super::*;
use crate::config::credentials::Credentials;

/// What the generated passwords are made of. No other text of the URLs has it.
const SECRET: &str = "SeCrEt";

/// Passwords as somebody may write them who does not encode them.
fn raw_password() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => Just(SECRET.to_owned()),
        2 => select(vec!["@", "/", "?", "#", ":", ",", "&", "=", "%", "[", "]", "://", "%40", "%zz", " "])
            .prop_map(String::from),
    ];
    prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
}

/// URLs with passwords, often wrong.
fn url_with_passwords() -> impl Strategy<Value = String> {
    let scheme = select(vec![
        "redis",
        "rediss+cluster",
        "redis+sentinel",
        "unix",
        "valkeys",
        "http",
    ]);
    let before = select(vec!["://user:", "://:", "://%40:"]);
    let after = select(vec![
        "@host",
        "@h1,h2:7000",
        "@",
        "",
        "@a b",
        "@host:0",
        "@[::1",
        ",h2",
        "@/run/r.sock",
    ]);
    let path = select(vec!["", "/", "/3", "/locks", "/locks/x", "/a%"]);
    let query = select(vec![
        "",
        "?pass=",
        "?sentinel_user=s&sentinel_password=",
        "?sentinel_password=",
        "?wait=",
        "?nodelay=true&name=",
    ]);
    let end = select(vec!["", "&x=y", "&sentinel_tls=1", "#insecure", "#x"]);
    (
        scheme,
        before,
        raw_password(),
        after,
        path,
        query,
        raw_password(),
        end,
    )
        .prop_map(
            |(scheme, before, password, after, path, query, other, end)| {
                let other = if query.is_empty() { "" } else { &other };
                format!("{scheme}{before}{password}{after}{path}{query}{other}{end}")
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_text_is_read_or_refused(text in ".*", tail in "[a-z0-9:/@?#%&=,\\[\\]+.-]{0,40}") {
        for url in [text.clone(), tail.clone(), format!("redis://{text}"), format!("rediss+sentinel://{tail}")] {
            let _read = Url::parse(&url);
        }
    }

    #[test]
    fn no_error_quotes_a_password(url in url_with_passwords()) {
        match Url::parse(&url) {
            Err(error) => prop_assert!(!error.to_string().contains(SECRET), "{url}: {error}"),
            // A wrong URL may still be a right one of another meaning, also of another name of the client.
            Ok(read) => prop_assert!(!format!("{:?}", read.login).contains(SECRET), "{url}"),
        }
    }

    #[test]
    fn what_is_encoded_is_read_as_it_was(
        user in ".{1,10}",
        password in ".{1,10}",
        hosts in prop::collection::vec(("[a-z][a-z0-9.-]{0,8}", 1..=u16::MAX), 1..5),
        service in ".{1,10}",
        db in 0..=i32::MAX as u32,
    ) {
        let encode = |text: &str| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
        };
        let listed: Vec<String> = hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let url = format!(
            "redis+sentinel://{}:{}@{}/{}/{db}",
            encode(&user),
            encode(&password),
            listed.join(","),
            encode(&service)
        );
        let expected = Target::Sentinel {
            sentinels: hosts.iter().map(|(host, port)| tcp(host, *port)).collect(),
            service,
            db,
            login: None,
            tls: Tls::Off,
        };
        let url = read(&url);
        prop_assert_eq!(url.target, expected);
        prop_assert_eq!(url.login, Some(Login::Full(Credentials::new(user, password))));
    }
}
