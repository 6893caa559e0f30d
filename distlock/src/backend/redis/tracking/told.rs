//! What the servers have sent of the keys that they track, until the session takes it.

use std::collections::HashSet;

use redis::{PushInfo, PushKind, Value};

use crate::backend::Told;
use crate::backend::redis::names;
use crate::config::MOST_NAMES_TOLD;
use crate::sync::Notify;
use crate::sync::{Mutex, foreign};

/// The words of all servers of one client. The driver's tasks add them and wait for nobody.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    told: Mutex<Told>,
    wake: Notify,
}

impl Told {
    /// A word with this data: the names of keys, or none for all keys.
    fn add(&mut self, data: &[Value]) {
        for value in data {
            match value {
                Value::Nil => self.add_all(),
                Value::Array(names) => self.add(names),
                Value::BulkString(name) => self.add_name(&String::from_utf8_lossy(name)),
                Value::SimpleString(name) => self.add_name(name),
                _ => {}
            }
        }
    }

    fn add_name(&mut self, name: &str) {
        if self.all {
            return;
        }
        self.names.extend(names::holding(name).map(str::to_owned));
        if self.names.len() > MOST_NAMES_TOLD {
            self.add_all();
        }
    }

    fn add_all(&mut self) {
        self.all = true;
        self.names = HashSet::new();
    }

    /// What was told since the last call, if anything was.
    fn take(&mut self) -> Option<Self> {
        let is_any = self.all || !self.names.is_empty();
        is_any.then(|| std::mem::take(self))
    }
}

impl Heard {
    /// What a server has sent unrequested.
    pub(crate) fn add(&self, push: &PushInfo) {
        if push.kind != PushKind::Invalidate {
            return;
        }
        self.told.lock().add(&push.data);
        foreign::notify_own_task(&self.wake);
    }

    /// Completes with what was told since the last call.
    pub(crate) async fn next(&self) -> Told {
        loop {
            let told = self.told.lock().take();
            match told {
                Some(told) => return told,
                None => self.wake.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(data: Value) -> PushInfo {
        PushInfo {
            kind: PushKind::Invalidate,
            data: vec![data],
        }
    }

    fn names(names: impl IntoIterator<Item = String>) -> Value {
        let text = |name: String| Value::BulkString(name.into_bytes());
        Value::Array(names.into_iter().map(text).collect())
    }

    fn taken(heard: &Heard) -> Option<Told> {
        heard.told.lock().take()
    }

    #[test]
    fn words_are_kept_once_each_until_they_are_taken() {
        let heard = Heard::default();
        for name in ["b", "a", "b"] {
            heard.add(&word(names([name.to_owned()])));
        }
        let told = Told {
            all: false,
            names: HashSet::from(["a", "b"].map(str::to_owned)),
        };
        assert_eq!(taken(&heard), Some(told));
        assert_eq!(taken(&heard), None);
    }

    #[test]
    fn word_without_names_means_all_keys_and_so_do_more_names_than_are_kept() {
        let heard = Heard::default();
        heard.add(&word(names(["a".to_owned()])));
        heard.add(&word(Value::Nil));
        let all = Some(Told {
            all: true,
            names: HashSet::new(),
        });
        assert_eq!(taken(&heard), all);
        heard.add(&word(names((0..=MOST_NAMES_TOLD).map(|n| n.to_string()))));
        heard.add(&word(names(["one more".to_owned()])));
        assert_eq!(taken(&heard), all);
    }

    #[test]
    fn other_words_of_the_server_are_passed_over() {
        let heard = Heard::default();
        heard.add(&PushInfo {
            kind: PushKind::Message,
            data: vec![names(["a".to_owned()])],
        });
        assert_eq!(taken(&heard), None);
    }
}
