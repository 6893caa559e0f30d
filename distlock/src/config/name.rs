//! What a client is called in the server, so that an owner leads to a machine.

use std::borrow::Cow;

use super::MAX_NAME_BYTES;
use crate::error::Error;

/// The name of a client: the user's, or that of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientName(Option<String>);

impl ClientName {
    pub(crate) fn new(name: String) -> Self {
        Self(Some(name))
    }

    pub(crate) fn text(&self) -> Cow<'_, str> {
        match &self.0 {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(of_this_process()),
        }
    }

    /// The name with the client's id, as the server keeps it for each connection.
    #[cfg(feature = "redis")]
    pub(crate) fn with_id(&self, id: uuid::Uuid) -> String {
        format!("{}:{id}", self.text())
    }

    /// Rejects a name that the server would refuse, and an empty or a very long one.
    pub(super) fn check(&self) -> Result<(), Error> {
        let text = self.text();
        if !text.is_empty() && text.len() <= MAX_NAME_BYTES && text.chars().all(is_allowed) {
            return Ok(());
        }
        Err(Error::invalid_config(
            "name",
            format!("{text:?}"),
            format!("1 to {MAX_NAME_BYTES} visible ASCII characters without blanks"),
        ))
    }
}

/// The server keeps its list of clients as a text, with a client in each line and spaces between the fields.
fn is_allowed(c: char) -> bool {
    c.is_ascii_graphic()
}

/// The name of this machine and the id of this process. Not kept: a copy of the process has another id.
fn of_this_process() -> String {
    let host = gethostname::gethostname();
    of_process(&host.to_string_lossy(), std::process::id())
}

fn of_process(host: &str, process: u32) -> String {
    let allowed = |c: char| if is_allowed(c) { c } else { '-' };
    // The host is cut, and not the number, which tells the processes of a host apart.
    let process = format!("-{process}");
    let most = MAX_NAME_BYTES - process.len();
    let host: String = host.chars().map(allowed).take(most).collect();
    host + &process
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_server_would_refuse_are_refused_here() {
        let longest = "n".repeat(MAX_NAME_BYTES);
        for name in ["orders-7f9c", "a:b@c/[d]", "!", "~", &longest] {
            ClientName::new(name.to_owned()).check().unwrap();
        }
        let too_long = "n".repeat(MAX_NAME_BYTES + 1);
        for name in [
            "",
            " ",
            "orders 7f9c",
            "a\nb",
            "a\r",
            "a\tb",
            "\0",
            "\x7f",
            "bestellung-ü",
            &too_long,
        ] {
            let refused = ClientName::new(name.to_owned()).check().unwrap_err();
            let text = refused.to_string();
            assert!(
                matches!(refused, Error::InvalidConfig { .. }),
                "{refused:?}"
            );
            assert!(text.contains(&format!("{name:?}")), "{text}");
        }
    }

    #[test]
    fn name_of_a_process_passes_whatever_its_machine_is_called() {
        ClientName::default().check().unwrap();
        assert_eq!(of_process("web 1 ü", 42), "web-1---42");
        for host in ["", &"h".repeat(300)] {
            ClientName::new(of_process(host, u32::MAX)).check().unwrap();
        }
    }
}
