use std::time::Duration;

use super::*;
use crate::config::credentials::Credentials;
use crate::config::{PubSub, Replicas, Settings};

pub(super) fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp {
        host: host.into(),
        port,
    }
}

pub(super) fn read(url: &str) -> Url {
    Url::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn full(user: &str, password: &str) -> Login {
    Login::Full(Credentials::new(user, password))
}

fn refused(url: &str) -> String {
    match Url::parse(url) {
        Ok(read) => panic!("{url}: {read:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn one_server_has_an_address_a_database_and_perhaps_a_user() {
    let secret = || Some(Credentials::of_default_user("pw"));
    for (url, address, db, credentials, tls) in [
        ("redis://h", tcp("h", 6379), 0, None, Tls::Off),
        (
            "valkey://127.0.0.1:7000/",
            tcp("127.0.0.1", 7000),
            0,
            None,
            Tls::Off,
        ),
        (
            "REDIS://H/15?protocol=resp3",
            tcp("H", 6379),
            15,
            None,
            Tls::Off,
        ),
        (
            "rediss://:pw@[::1]:7001/3",
            tcp("::1", 7001),
            3,
            secret(),
            Tls::Verified,
        ),
        (
            "valkeys://[::1]#Insecure",
            tcp("::1", 6379),
            0,
            None,
            Tls::Insecure,
        ),
        (
            "unix:///run/r.sock?db=2",
            Address::Unix("/run/r.sock".into()),
            2,
            None,
            Tls::Off,
        ),
        (
            "valkey+unix://:pw@/a%40b",
            Address::Unix("/a@b".into()),
            0,
            secret(),
            Tls::Off,
        ),
        (
            "redis+unix:///r?pass=pw",
            Address::Unix("/r".into()),
            0,
            secret(),
            Tls::Off,
        ),
    ] {
        let target = Target::Server { address, db };
        let expected = Url {
            target,
            login: credentials.map(Login::Full),
            tls,
            settings: Settings::default(),
        };
        assert_eq!(read(url), expected, "{url}");
    }
    let shop = Some(full("shop@x", "a,b:/c"));
    assert_eq!(read("redis://shop%40x:a,b:%2fc@h").login, shop);
}

#[test]
fn user_may_stand_without_a_password() {
    for url in [
        "redis://shop@h",
        "redis+cluster://shop:@h1,h2",
        "redis://shop@h?password_file=/p",
        "unix:///r?user=shop",
        "unix:///r?user=shop&password_file=/p",
    ] {
        assert_eq!(read(url).login, Some(Login::User("shop".to_owned())));
    }
    let text = refused("unix://shop@/r?user=u&pass=p");
    assert!(text.contains("another one in the query"), "{text}");
}

#[test]
fn urls_are_read_as_providers_write_them() {
    let plain = |db| Target::Server {
        address: tcp("h", 6379),
        db,
    };
    for (url, db) in [
        (" redis://h\r\n", 0),
        ("\tREDIS://:@h/", 0),
        ("redis://h/3/", 3),
        ("redis://h?db=3", 3),
        ("redis://h/?DB=3&Protocol=3&FAMILY=0", 3),
        ("redis://h?PROTOCOL=RESP3", 0),
        ("redis://h/3?db=3", 3),
        ("\u{feff}redis://h\n", 0),
    ] {
        let url = read(url);
        assert_eq!(url.target, plain(db));
        assert_eq!(url.login, None);
    }
    let capital = read("redis://h?WAIT=5s&NoDelay=TRUE&pub_sub=Both").settings;
    assert_eq!(capital.default_wait, Some(Duration::from_secs(5)));
    assert_eq!(
        (capital.nodelay, capital.pub_sub),
        (Some(true), Some(PubSub::Both))
    );
    let seeds = vec![tcp("h1", 6379), tcp("h2", 6379)];
    for url in ["redis+cluster://h1,h2/7", "valkey+cluster://h1,h2?db=7"] {
        let seeds = seeds.clone();
        assert_eq!(read(url).target, Target::Cluster { seeds, db: 7 });
    }
    let sentinel = read("redis+sentinel://h/locks/3/").target;
    assert_eq!(read("redis+sentinel://h/locks?db=3").target, sentinel);
}

#[test]
fn cluster_has_nodes_and_sentinel_a_service() {
    let url = read("rediss+cluster://shop:pw@h1:7000,h2,[::1]:7001/0");
    let seeds = vec![tcp("h1", 7000), tcp("h2", 6379), tcp("::1", 7001)];
    assert_eq!(url.target, Target::Cluster { seeds, db: 0 });
    assert_eq!(
        (url.login, url.tls),
        (Some(full("shop", "pw")), Tls::Verified)
    );
    assert_eq!(
        read("redis-cluster://h").target,
        read("valkey+cluster://h").target
    );

    let sentinels = vec![tcp("h1", 26379), tcp("h2", 26380)];
    let plain = Target::Sentinel {
        sentinels: sentinels.clone(),
        service: "my locks".into(),
        db: 4,
        login: None,
        tls: Tls::Off,
    };
    assert_eq!(
        read("redis-sentinel://h1,h2:26380/my%20locks/4").target,
        plain
    );
    let url = read(
        "rediss+sentinel://h1,h2:26380/locks?sentinel_tls=false&sentinel_user=s&sentinel_password=%26#insecure",
    );
    let other_login = Target::Sentinel {
        sentinels,
        service: "locks".into(),
        db: 0,
        login: Some(full("s", "&")),
        tls: Tls::Off,
    };
    assert_eq!(
        (url.target, url.tls, url.login),
        (other_login, Tls::Insecure, None)
    );
    let url = read("redis+sentinel://h/locks?Sentinel_TLS=True#insecure");
    let is_insecure = matches!(
        url.target,
        Target::Sentinel {
            tls: Tls::Insecure,
            ..
        }
    );
    assert!(is_insecure && url.tls == Tls::Off, "{url:?}");
}

#[test]
fn each_arrangement_may_have_each_setting() {
    let query = "key_prefix=shop%3A&wait=500ms&max_waiters=1&nodelay=true&pub_sub=both&replicas=8&restart_grace=0&\
                 protocol=resp3";
    // The others are read as these are: the table has a test of each row.
    let expected = Settings {
        key_prefix: Some("shop:".to_owned()),
        default_wait: Some(Duration::from_millis(500)),
        max_waiters: Some(1),
        nodelay: Some(true),
        pub_sub: Some(PubSub::Both),
        replicas: Some(Replicas::Count(8)),
        restart_grace: Some(Duration::ZERO),
        ..Settings::default()
    };
    for url in [
        "redis://h",
        "rediss+cluster://u:p@h1,h2",
        "redis+sentinel://h/s/3",
        "unix:///r",
    ] {
        let plain = read(url);
        let set = read(&format!("{url}?{query}"));
        assert_eq!(set.settings, expected, "{url}");
        assert_eq!(set.target, plain.target, "{url}");
        assert_eq!(plain.settings, Settings::default(), "{url}");
    }
    let long = read("redis://h?default_wait=1s").settings.default_wait;
    assert_eq!(long, Some(Duration::from_secs(1)));
}

#[test]
fn bad_input_is_refused_with_the_name_of_the_part() {
    for (url, says) in [
        ("", "expected `redis://"),
        ("127.0.0.1:6379", "expected `redis://"),
        ("http://host", "expected `redis://"),
        ("rediss+unix:///r", "expected `redis://"),
        ("redis+ring://host", "expected `redis://"),
        ("redis://", "the host is missing"),
        ("redis:///3", "the host is missing"),
        ("redis://:7000", "the host is missing"),
        ("redis+cluster://h1,,h2", "host 2 of 3 is missing"),
        ("redis+sentinel://h1,/locks", "host 2 of 2 is missing"),
        ("redis://host:0", "the port of the host "),
        ("redis://host:70000", "the port of the host "),
        ("redis+cluster://h1:7000,h2:+1", "the port of host 2 of 2 "),
        ("redis://host:", "the port of the host "),
        ("redis://a b", "the host has a character"),
        ("redis://::1", "in brackets"),
        ("redis://1::1", "in brackets"),
        (
            "redis://[::1",
            "the host begins with `[` and is not an IPv6 address",
        ),
        (
            "redis://[h]:1",
            "the host begins with `[` and is not an IPv6 address",
        ),
        ("redis://[::1]7000", "neither a `:` nor its end"),
        ("redis://one:1,two:2", "one server, and found several"),
        ("rediss://u:p@one,two/3", "one server, and found several"),
        ("redis://host/abc", "number of a database"),
        ("redis://host/-1", "number of a database"),
        ("redis://host/+1", "number of a database"),
        ("redis://host/3000000000", "number of a database"),
        ("redis://host/1/2", "number of a database"),
        ("redis+sentinel://host", "the name of a service"),
        ("redis+sentinel://host//1", "the name of a service"),
        ("redis+sentinel://host/s/x", "number of a database"),
        ("redis://host/1?db=2", "another one by the word `db`"),
        ("redis://host?family=6", "the only `family` is `0`"),
        ("redis://host?protocol=resp2", "`protocol` is `resp3`"),
        ("redis://host?protocol=resp3&protocol=resp3", "twice"),
        ("redis://host?wait=5", "`wait` is no duration"),
        (
            "redis://host?default_wait=1w",
            "`default_wait` is no duration",
        ),
        ("redis://host?wait=5s&default_wait=5s", "the query has both"),
        ("redis://host?wait=5s&wait=5s", "`wait` stands twice"),
        (
            "redis://host?max_waiters=-1",
            "`max_waiters` is not a number",
        ),
        (
            "redis://host?replicas=4294967296",
            "`replicas` is neither `connected` nor a number",
        ),
        (
            "redis://host?nodelay=1",
            "`nodelay` is none of `true`, `false`",
        ),
        (
            "redis://host?pub_sub=no",
            "`pub_sub` is none of `auto`, `both`, `plain`",
        ),
        ("redis://host?name=%zz", "in `name`, a `%` without"),
        ("redis://host?weit=5s", "the unknown word \"weit\""),
        (
            "redis://u:p@host?wait=5s&weit=5s",
            "word 2 of the query is unknown",
        ),
        (
            "redis://u:p@host?ssl_cert_reqs=none",
            "`ssl_cert_reqs`, a word of other clients",
        ),
        ("redis://h?timeout=5", "write `connect_timeout=5s`"),
        (
            "redis://u:p@h?connectTimeout=5000",
            "write `connect_timeout=..`",
        ),
        ("redis://u:p@h?Key-Prefix=x", "write `key_prefix=..`"),
        ("redis://h?syncTimeout=5", "write `response_timeout=2s`"),
        ("redis://h?pool_timeout=5s", "shares one connection"),
        ("redis://h?skip_verify=true", "`#insecure`"),
        ("redis://u:p@h?user=x", "`user`, a word of other clients"),
        (
            "redis+cluster://h?node=h2:1",
            "write `redis+cluster://host1,host2`",
        ),
        ("redis-cli --tls -u redis://u:p@h", "looks like a command"),
        ("REDIS_URL=redis://u:p@h", "a name with a `=` before"),
        ("redis+tls://h", "write `rediss://` for TLS"),
        ("redis+srv://h", "write the hosts themselves"),
        ("redis://u:p@h?clientName=x", "write `name=..`"),
        ("host", "looks like `host:port`; write `redis://`"),
        (
            "h-1.example.com:6379",
            "looks like `host:port`; write `redis://`",
        ),
        ("\"redis://h\"", "has quotes around it"),
        ("${REDIS_URL}", "the name of a variable"),
        ("memory://", "call `Client::in_memory`"),
        ("tcp://h:6379", "instead of `tcp://`"),
        ("redis:h:6379", "no `//` after the scheme"),
        ("/run/redis.sock", "write `unix://`"),
        (" \n", "the text is empty"),
        ("redis://host#insecure", "`#insecure` is for TLS"),
        ("unix:///r#insecure", "`#insecure` is for TLS"),
        ("rediss+sentinel://h/s#secure", "is `insecure`"),
        ("redis://h?sentinel_user=s", "are for `redis+sentinel://`"),
        (
            "redis+cluster://h?sentinel_tls=true",
            "are for `redis+sentinel://`",
        ),
        (
            "redis+sentinel://h/s?sentinel_tls=yes",
            "`sentinel_tls` is neither",
        ),
        ("redis://@host", "a user without password"),
        ("unix://u:p@/r?user=u&pass=p", "another one in the query"),
        ("unix://host/r", "the path of a socket"),
        ("unix://", "the path of a socket"),
        ("redis://u:%@host", "in the password, a `%`"),
        ("redis://%f:p@host", "in the user, a `%`"),
        ("redis://%é:p@host", "in the user, a `%`"),
        ("redis://u:%ff@host", "the password is not UTF-8"),
    ] {
        let text = refused(url);
        assert!(text.contains(says), "{url}: {text}");
    }
}
