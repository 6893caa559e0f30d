//! Words of other clients, and what to write for them here.

use crate::config::Settings;

const LEAVE_OUT: &str = "leave it out";
const CONNECT_TIMEOUT: &str = "write `connect_timeout=5s`";
const DATABASE: &str = "write `db=3`, or the number after the host";
const RESPONSE_TIMEOUT: &str = "write `response_timeout=2s`";
const LOGIN: &str = "write it before the host, as in `redis://user:password@host`";
const REDISS: &str = "write `rediss://` for TLS";
const SERVICE: &str = "write `redis+sentinel://host1,host2/service`";
const ONE_CONNECTION: &str = "leave it out: a client shares one connection among all tasks";
const BY_ITSELF: &str = "leave it out: the client connects again by itself";
const VERIFIED: &str = "leave it out, or for `none` end the URL with `#insecure`";

/// What to write, and for which words. Each word is in small letters, without `_` and `-`.
const WORDS: &[(&str, &[&str])] = &[
    (
        LEAVE_OUT,
        &[
            "alias",
            "allowadmin",
            "asyncconnect",
            "charset",
            "checkcertificaterevocation",
            "compression",
            "configchannel",
            "configcheckseconds",
            "decoderesponses",
            "enableofflinequeue",
            "enablereadycheck",
            "encoding",
            "encodingerrors",
            "failover",
            "fanoutprefix",
            "highintegrity",
            "keepalive",
            "libname",
            "libraryname",
            "libraryversion",
            "libversion",
            "proxy",
            "readfrom",
            "resolvedns",
            "serializer",
            "setlib",
            "socketkeepalive",
            "socketreadsize",
            "sockettype",
            "sslciphers",
            "sslprotocols",
            "sslminversion",
            "tiebreaker",
            "visibilitytimeout",
        ],
    ),
    (
        ONE_CONNECTION,
        &[
            "connectionminimumidlesize",
            "connectionpoolsize",
            "connmaxidletime",
            "connmaxlifetime",
            "idletimeout",
            "maxactiveconns",
            "maxconnage",
            "maxconnections",
            "maxidle",
            "maxidleconns",
            "maxpoolsize",
            "maxtotal",
            "minidle",
            "minidleconns",
            "minpoolsize",
            "persistent",
            "persistentid",
            "poolfifo",
            "poolsize",
            "pooltimeout",
            "singleconnectionclient",
        ],
    ),
    (
        BY_ITSELF,
        &[
            "connectretry",
            "maxretriesperrequest",
            "maxretrybackoff",
            "minretrybackoff",
            "reconnectattempts",
            "retry",
            "retryattempts",
            "retryinterval",
            "retryonerror",
            "retryontimeout",
            "retrytimeout",
        ],
    ),
    ("leave it out, and see `unavailable_after`", &["maxretries"]),
    (
        "leave it out, and see `connect_lazy`",
        &["abortconnect", "lazy", "lazyconnect"],
    ),
    (
        CONNECT_TIMEOUT,
        &["connectiontimeout", "dialtimeout", "socketconnecttimeout"],
    ),
    (
        RESPONSE_TIMEOUT,
        &[
            "asynctimeout",
            "commandtimeout",
            "readtimeout",
            "readwritetimeout",
            "receivetimeout",
            "sendtimeout",
            "sockettimeout",
            "synctimeout",
            "writetimeout",
        ],
    ),
    (
        "write `connect_timeout=5s`, `response_timeout=2s` or `wait=5s`, which are three things here",
        &["timeout"],
    ),
    (
        "write `ping_interval=30s`",
        &["healthcheckinterval", "pingconnectioninterval"],
    ),
    ("write `nodelay=true`", &["tcpnodelay"]),
    ("write `watchdog_timeout=30s`", &["lockwatchdogtimeout"]),
    (DATABASE, &["database", "dbindex", "defaultdatabase"]),
    ("write `name=..`", &["client", "clientid", "clientname"]),
    (
        "write `key_prefix=..`",
        &["channelprefix", "namespace", "namespaceprefix", "prefix"],
    ),
    (LOGIN, &["auth", "pass", "password", "user", "username"]),
    (
        SERVICE,
        &[
            "mastername",
            "redissentinel",
            "replicaset",
            "sentinelmaster",
            "sentinelmasterid",
            "sentinelservicename",
            "servicename",
        ],
    ),
    (
        "write `sentinel_user=..`",
        &["sentineluser", "sentinelusername"],
    ),
    ("write `sentinel_password=..`", &["sentinelpassword"]),
    (
        "write `redis+cluster://host1,host2`",
        &["cluster", "node", "rediscluster", "startupnodes"],
    ),
    (REDISS, &["ssl", "tls"]),
    (
        VERIFIED,
        &[
            "insecureskipverify",
            "rejectunauthorized",
            "skipverify",
            "sslcertreqs",
            "sslcheckhostname",
            "sslverify",
            "tlsrejectunauthorized",
            "verifypeer",
        ],
    ),
    (
        "write `tls_server_name=..`",
        &["servername", "sni", "sslhost"],
    ),
    (
        "write `tls_ca_file=..`",
        &["cacert", "cafile", "sslcacerts", "sslcafile"],
    ),
    (
        "write `tls_client_cert_file=..`",
        &["certfile", "sslcert", "sslcertfile"],
    ),
    (
        "write `tls_client_key_file=..`",
        &["keyfile", "sslkey", "sslkeyfile"],
    ),
];

/// What to write here for a word of another client, or for one of ours that is written as others write words.
pub(super) fn advice(word: &str) -> Option<String> {
    let word = plain(word);
    let mut foreign = WORDS.iter();
    let foreign = foreign.find(|(_, words)| words.contains(&word.as_str()));
    let own = || {
        let mut rows = Settings::words().iter();
        let row = rows.find(|row| plain(row.word) == word)?;
        Some(format!("write `{}=..`", row.word))
    };
    foreign.map(|(advice, _)| (*advice).to_owned()).or_else(own)
}

/// A word in small letters, without `_` and `-`.
fn plain(word: &str) -> String {
    let letters = word.chars().filter(|c| !"_-".contains(*c));
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_stands_once_as_it_is_compared_and_is_none_of_ours() {
        let mut words: Vec<&str> = WORDS
            .iter()
            .flat_map(|(_, words)| *words)
            .copied()
            .collect();
        for word in &words {
            assert_eq!(plain(word), *word);
            let is_ours = |ours: &&str| plain(ours) == *word;
            let mut ours = Settings::words().iter().map(|row| row.word);
            assert!(!ours.any(|own| is_ours(&own)), "{word}");
        }
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count, "{words:?}");
    }
}
