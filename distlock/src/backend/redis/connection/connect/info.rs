//! What a server says of itself in its answer to INFO: since when it is up, which run it is, and whether it evicts keys.

use std::time::Duration;

use redis::{Value, cmd};

use super::driven::Driven;
use crate::backend::redis::reply;
use crate::backend::{Fault, cause};

/// For how long the server has been up at least. It subtracts two times that it has cut to whole seconds, so what it says may be
/// nearly a second too much.
pub(crate) async fn uptime(connection: &mut Driven) -> Result<Duration, Fault> {
    let mut info = cmd("INFO");
    info.arg("server");
    let text = match info.query_async::<String>(connection).await {
        Ok(text) => text,
        Err(error) => {
            return Err(match reply::fault(error) {
                Fault::Denied(_, denied) => Fault::LoginDenied(cause(format!(
                    "`restart_grace` needs the right to ask how long the server has been up, `+info`: {denied}"
                ))),
                fault => fault,
            });
        }
    };
    let seconds = field_of_info(&text, "uptime_in_seconds").and_then(|text| text.parse().ok());
    // A rule of tests/model: uptime_is_counted_a_second_shorter.
    let at_least = |seconds: u64| Duration::from_secs(seconds.saturating_sub(1));
    seconds.map(at_least).ok_or_else(|| {
        let text = "the server does not say how long it has been up, which `restart_grace` needs";
        Fault::Protocol(cause(text))
    })
}

/// The id of the server's run in the answer to INFO. Some providers show zeros instead.
pub(crate) fn run_id(info: &str) -> Option<&str> {
    field_of_info(info, "run_id").filter(|id| id.bytes().any(|byte| byte != b'0'))
}

/// The id of the run of a server that says that it is a master.
pub(crate) fn run_of_master<'a>(replication: &str, server: &'a str) -> Option<&'a str> {
    let is_master = field_of_info(replication, "role") == Some("master");
    run_id(server).filter(|_| is_master)
}

/// The policy by which the server deletes keys when its memory is full, by its answer to INFO.
pub(crate) fn evicts(memory: &Value) -> Option<String> {
    let info = redis::from_redis_value_ref::<String>(memory).ok()?;
    policy_of_eviction(&info).map(str::to_owned)
}

/// The policy by which the server evicts keys, if it has a memory limit and such a policy.
fn policy_of_eviction(info: &str) -> Option<&str> {
    let has_limit = field_of_info(info, "maxmemory").is_some_and(|limit| limit != "0");
    field_of_info(info, "maxmemory_policy").filter(|policy| has_limit && *policy != "noeviction")
}

/// A field of the answer to INFO.
fn field_of_info<'a>(info: &'a str, wanted: &str) -> Option<&'a str> {
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(field, _)| *field == wanted);
    found.map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_of_a_server_is_the_id_that_it_shows() {
        let id = "b1946ac92492d2347c6235b4d2611184f0a1c2d3";
        let info =
            |id: &str| format!("# Server\r\nredis_version:7.0.15\r\nrun_id:{id}\r\ntcp_port:1\r\n");
        assert_eq!(run_id(&info(id)), Some(id));
        for none in [info("0000"), info("0"), info(""), "# Server".to_owned()] {
            assert_eq!(run_id(&none), None, "{none}");
        }
    }

    #[test]
    fn policies_evict_only_below_a_memory_limit() {
        let info = |limit: u64, policy: &str| {
            format!(
                "# Memory\r\nmaxmemory:{limit}\r\nmaxmemory_human:0B\r\nmaxmemory_policy:{policy}\r\n"
            )
        };
        assert_eq!(
            policy_of_eviction(&info(1_000, "allkeys-lru")),
            Some("allkeys-lru")
        );
        assert_eq!(policy_of_eviction(&info(1_000, "noeviction")), None);
        assert_eq!(policy_of_eviction(&info(0, "allkeys-lru")), None);
        assert_eq!(policy_of_eviction("# Memory"), None);
    }
}
