//! Words of other clients, and what to write for them here.

const LEAVE_OUT: &str = "leave it out";
const CONNECT_TIMEOUT: &str = "write `connect_timeout=5s`";
const RESPONSE_TIMEOUT: &str = "write `response_timeout=2s`";
const LOGIN: &str = "write it before the host, as in `redis://user:password@host`";
const REDISS: &str = "write `rediss://` for TLS";
const SERVICE: &str = "write `redis+sentinel://host1,host2/service`";
const ONE_CONNECTION: &str = "leave it out: a client shares one connection among all tasks";

/// Each word in small letters, without `_` and `-`.
const WORDS: [(&str, &str); 42] = [
    ("abortconnect", "leave it out, and see `connect_lazy`"),
    ("allowadmin", LEAVE_OUT),
    ("asynctimeout", RESPONSE_TIMEOUT),
    ("channelprefix", "write `key_prefix=..`"),
    ("charset", LEAVE_OUT),
    ("clientid", "write `name=..`"),
    ("clientname", "write `name=..`"),
    ("commandtimeout", RESPONSE_TIMEOUT),
    ("connectiontimeout", CONNECT_TIMEOUT),
    ("connectionpoolsize", ONE_CONNECTION),
    (
        "connectretry",
        "leave it out: the client connects again by itself",
    ),
    ("database", "write `db=3`, or the number after the host"),
    ("decoderesponses", LEAVE_OUT),
    (
        "defaultdatabase",
        "write `db=3`, or the number after the host",
    ),
    ("dialtimeout", CONNECT_TIMEOUT),
    ("encoding", LEAVE_OUT),
    ("healthcheckinterval", LEAVE_OUT),
    ("keepalive", LEAVE_OUT),
    ("lockwatchdogtimeout", "write `watchdog_timeout=30s`"),
    ("mastername", SERVICE),
    ("maxconnections", ONE_CONNECTION),
    ("maxretries", "leave it out, and see `unavailable_after`"),
    ("password", LOGIN),
    ("poolsize", ONE_CONNECTION),
    ("prefix", "write `key_prefix=..`"),
    ("readtimeout", RESPONSE_TIMEOUT),
    ("resolvedns", LEAVE_OUT),
    ("retryontimeout", LEAVE_OUT),
    ("sentinelmasterid", SERVICE),
    ("servicename", SERVICE),
    ("socketconnecttimeout", CONNECT_TIMEOUT),
    ("socketkeepalive", LEAVE_OUT),
    ("sockettimeout", RESPONSE_TIMEOUT),
    ("ssl", REDISS),
    ("sslcacerts", "write `tls_ca_file=..`"),
    ("sslcertfile", "write `tls_client_cert_file=..`"),
    (
        "sslcertreqs",
        "leave it out, or for `none` end the URL with `#insecure`",
    ),
    ("sslkeyfile", "write `tls_client_key_file=..`"),
    (
        "timeout",
        "write `connect_timeout=5s`, `response_timeout=2s` or `wait=5s`, which are three things here",
    ),
    ("tls", REDISS),
    ("username", LOGIN),
    ("writetimeout", RESPONSE_TIMEOUT),
];

/// What to write here for a word of another client.
pub(super) fn advice(word: &str) -> Option<&'static str> {
    let is_letter = |c: &char| !"_-".contains(*c);
    let word: String = word
        .to_ascii_lowercase()
        .chars()
        .filter(is_letter)
        .collect();
    let found = WORDS.iter().find(|(foreign, _)| *foreign == word);
    found.map(|(_, advice)| *advice)
}
