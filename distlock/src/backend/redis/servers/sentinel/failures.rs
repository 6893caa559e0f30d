//! Why no master was found, as the errors say it.

use std::fmt::Write as _;

use crate::backend::{Fault, cause};

/// Why no master was found.
#[derive(Default)]
pub(super) struct Failures {
    /// How many Sentinels do not know the service.
    pub(super) without_service: usize,
    pub(super) faults: Vec<Fault>,
}

impl Failures {
    pub(super) fn fault(self, service: &str) -> Fault {
        // A refusal of one of them is no reason to give up while another one may still answer.
        let (refused, others): (Vec<_>, Vec<_>) = self
            .faults
            .into_iter()
            .partition(|fault| matches!(fault, Fault::LoginDenied(_)) || fault.is_final());
        if let Some(first) = others.first() {
            let mut text =
                format!("no Sentinel names a server that is the master of `{service}`: {first}");
            for other in others.iter().skip(1) {
                // Writing to a text cannot fail.
                let _written = write!(text, "; {other}");
            }
            return Fault::NotNow(cause(text));
        }
        match refused.into_iter().next() {
            Some(refused) => refused,
            None if self.without_service > 0 => Fault::Unsupported {
                server: "the Sentinels of the URL".to_owned(),
                reason: format!(
                    "they know no service `{service}`; write the name that their configuration gives in `sentinel monitor`"
                ),
            },
            None => Fault::NotNow(cause(format!("no server is the master of `{service}`"))),
        }
    }
}

/// The same fault, which says whom it is about.
pub(super) fn within(whom: &str, fault: Fault) -> Fault {
    match fault {
        Fault::LoginDenied(why) => Fault::LoginDenied(cause(format!("{whom}: {why}"))),
        Fault::Denied(key, why) => Fault::Denied(key, cause(format!("{whom}: {why}"))),
        Fault::Unsupported { .. } => fault,
        other => Fault::NotNow(cause(format!("{whom}: {other}"))),
    }
}
