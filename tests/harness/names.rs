//! A resolver of names that a test owns: what a name leads to, that it leads nowhere, or that no answer comes.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use distlock::Builder;
use parking_lot::Mutex;

/// What a resolver answers for a name.
#[derive(Clone, Debug)]
enum Answer {
    Addresses(Vec<SocketAddr>),
    /// Each answer has the next one of them.
    InTurn(Vec<SocketAddr>),
    NoSuchName,
    None,
}

/// Names, and where they lead. Names that are not set lead nowhere.
#[derive(Clone, Debug, Default)]
pub struct Names {
    names: Arc<Mutex<HashMap<String, Name>>>,
}

#[derive(Debug)]
struct Name {
    answer: Answer,
    asked: u64,
}

impl Names {
    /// Names that lead nowhere yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The name leads to these addresses from now on. With none of them, the answer is empty.
    pub fn lead(&self, name: &str, to: impl IntoIterator<Item = SocketAddr>) {
        self.set(name, Answer::Addresses(to.into_iter().collect()));
    }

    /// Each answer for the name has the next one of these addresses, and that alone.
    pub fn rotate(&self, name: &str, to: impl IntoIterator<Item = SocketAddr>) {
        self.set(name, Answer::InTurn(to.into_iter().collect()));
    }

    /// From now on the name does not exist.
    pub fn forget(&self, name: &str) {
        self.set(name, Answer::NoSuchName);
    }

    /// No look-up of the name ends from now on.
    pub fn hang(&self, name: &str) {
        self.set(name, Answer::None);
    }

    /// How often the name was looked up since it was set last.
    #[must_use]
    pub fn asked(&self, name: &str) -> u64 {
        self.names.lock().get(name).map_or(0, |name| name.asked)
    }

    fn set(&self, name: &str, answer: Answer) {
        let name = name.to_owned();
        self.names.lock().insert(name, Name { answer, asked: 0 });
    }

    fn answer(&self, name: &str) -> Answer {
        let mut names = self.names.lock();
        let Some(name) = names.get_mut(name) else {
            return Answer::NoSuchName;
        };
        name.asked += 1;
        match &name.answer {
            Answer::InTurn(addresses) => {
                let turn = usize::try_from(name.asked).unwrap() % addresses.len();
                Answer::Addresses(vec![addresses[turn]])
            }
            answer => answer.clone(),
        }
    }
}

/// Has a client ask a test's resolver, and not the machine's.
pub trait ByNames {
    /// The client asks these names, and nothing else.
    #[must_use]
    fn by_names(self, names: &Names) -> Self;
}

impl ByNames for Builder {
    fn by_names(self, names: &Names) -> Self {
        let names = names.clone();
        self.look_up_by(move |host, _port| {
            let answer = names.answer(host);
            async move {
                match answer {
                    Answer::Addresses(addresses) => Ok(addresses),
                    Answer::None => pending().await,
                    Answer::NoSuchName | Answer::InTurn(_) => {
                        Err(io::Error::other("Name or service not known"))
                    }
                }
            }
        })
    }
}
