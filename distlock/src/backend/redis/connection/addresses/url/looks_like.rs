//! Texts that are no URLs, and what they look like.

/// What a text without a known scheme looks like, and what to do. It quotes nothing: any text may have a password in it.
pub(super) fn looks_like(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("the text is empty");
    }
    if text.starts_with(['"', '\'', '`']) {
        return Some("the text has quotes around it; leave them out");
    }
    if text.starts_with('$') {
        return Some("it is the name of a variable, which nothing has replaced by its value");
    }
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("redis-cli") || lower.starts_with("valkey-cli") {
        return Some("it looks like a command; take the URL that stands in it");
    }
    if let Some((scheme, _)) = lower.split_once("://") {
        if scheme.contains('=') {
            return Some("there is a name with a `=` before the URL; leave it out");
        }
        return match scheme {
            "tcp" => Some("it has the scheme `tcp`; write `redis://` instead of `tcp://`"),
            "tls" | "ssl" | "redis+tls" | "redis+ssl" | "redis-tls" | "valkey+tls" => {
                Some("write `rediss://` for TLS")
            }
            "redis+srv" | "rediss+srv" => {
                Some("servers are not looked up in DNS by SRV records; write the hosts themselves")
            }
            "http" | "https" => Some(
                "it is an address of HTTP; use the provider's address for the protocol of Redis",
            ),
            "sentinel" => Some("write `redis+sentinel://`"),
            "memory" | "mem" => Some(
                "locks in memory have no URL; call `Client::in_memory` or `Builder::in_memory`",
            ),
            _ => None,
        };
    }
    let after_scheme = ["redis:", "rediss:", "valkey:", "valkeys:"];
    if after_scheme.iter().any(|scheme| lower.starts_with(scheme)) {
        return Some("there is no `//` after the scheme");
    }
    if text.starts_with('/') {
        return Some("it looks like the path of a socket; write `unix://` before it");
    }
    if text.contains("password=") || text.contains("abortConnect=") {
        return Some("it looks like a list of options, not like a URL");
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, "6379"));
    let is_of_host = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    let is_port = port.parse::<u16>().is_ok();
    (is_port && !host.is_empty() && host.chars().all(is_of_host))
        .then_some("it looks like `host:port`; write `redis://` before it")
}
