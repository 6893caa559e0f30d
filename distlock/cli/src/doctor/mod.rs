//! `doctor`: what an operator has to know of the servers, with what it means and what to do.

mod checks;

use std::collections::BTreeMap;

use distlock::Builder;
use serde::Serialize;

use self::checks::check;
use crate::args::{Doctor, Server};
use crate::connect::connect;
use crate::exit::{Failed, Status};
use crate::{output, terminal};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// It may cost locks, or waits, at some time.
    Warn,
    /// Locks do not work, or are lost in normal operation.
    Bad,
    /// The user may not ask, or the server cannot tell.
    Unknown,
}

/// What was found of one server.
#[derive(Debug, Serialize)]
struct Finding {
    server: String,
    check: &'static str,
    verdict: Verdict,
    /// What the server says.
    value: String,
    /// What that means, and what to do. Empty if there is nothing to do.
    advice: String,
}

impl Finding {
    fn new(check: &'static str, verdict: Verdict, value: impl Into<String>) -> Self {
        Self {
            server: String::new(),
            check,
            verdict,
            value: value.into(),
            advice: String::new(),
        }
    }

    fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    checks: Vec<Finding>,
}

/// Checks the servers. Returns the exit status.
pub(crate) async fn doctor(server: &Server, args: &Doctor) -> Result<u8, Failed> {
    let of_settings = server.settings.0.key_prefix.clone();
    let prefix = args.prefix.clone().or(of_settings);
    // Without one here, that of the URL counts.
    let with_prefix = |builder: Builder| match &prefix {
        Some(prefix) => builder.key_prefix(prefix.clone()),
        None => builder,
    };
    let (findings, status) = match connect(server, with_prefix).await {
        Ok(client) => {
            let of_url = || Some(client.key_prefix()).filter(|prefix| !prefix.is_empty());
            let prefix = prefix.clone().or_else(of_url);
            let facts = client.server_facts().await;
            let of_server = |facts: &distlock::ServerFacts| {
                let server = facts.server.clone();
                check(facts, prefix.as_deref())
                    .into_iter()
                    .map(move |finding| Finding {
                        server: server.clone(),
                        ..finding
                    })
            };
            let findings: Vec<_> = facts.iter().flat_map(of_server).collect();
            if findings.is_empty() {
                let nobody = Finding::new("connection", Verdict::Bad, "no server could be asked");
                (vec![nobody], Status::Unavailable)
            } else {
                (findings, Status::No)
            }
        }
        // Nothing was asked of a server.
        Err(failed) if failed.status == Status::Usage => return Err(failed),
        Err(failed) => {
            let finding = Finding::new("connection", Verdict::Bad, failed.to_string());
            let advice = "No client can use its locks. The text says what the server or the network has refused.";
            (vec![finding.advice(advice)], failed.status)
        }
    };
    let ok = !findings.iter().any(|one| one.verdict == Verdict::Bad);
    let report = Report {
        ok,
        checks: findings,
    };
    if server.json {
        output::json(&report)?
    } else {
        output::text(&text(&report.checks))?
    }
    Ok(if ok { 0 } else { status.code() })
}

/// The findings as text, by server.
fn text(findings: &[Finding]) -> String {
    let mut servers: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        servers.entry(&finding.server).or_default().push(finding);
    }
    let mut text = String::new();
    for (server, findings) in servers {
        if !server.is_empty() {
            text += &format!("{}\n", output::plain(server));
        }
        for finding in findings {
            let paint = terminal::stdout();
            let verdict = match finding.verdict {
                Verdict::Ok => paint.green("ok      "),
                Verdict::Warn => paint.yellow("warn    "),
                Verdict::Bad => paint.red("BAD     "),
                Verdict::Unknown => paint.dim("unknown "),
            };
            let value = output::plain(&finding.value);
            text += &format!("  {verdict} {:<12} {value}\n", finding.check);
            if !finding.advice.is_empty() {
                text += &format!("{:24}{}\n", "", output::plain(&finding.advice));
            }
        }
    }
    text
}
