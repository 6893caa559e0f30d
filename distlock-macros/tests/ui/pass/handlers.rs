#![deny(warnings, clippy::pedantic)]

use distlock::{Error, distributed_lock};

#[derive(Default)]
pub struct Report {
    pub day: String,
}

#[distributed_lock(key = "<day>", on_busy = |_| Report::default(), on_error = |_| Report::default())]
pub async fn both(day: String) -> Report {
    Report { day }
}

#[distributed_lock(key = "<day>", on_busy = |_| Ok(()))]
pub async fn busy_only(day: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "<day>", on_error = |error| { eprintln!("{day}: {error}"); })]
pub async fn unit(day: &str) {
    eprintln!("{day}");
}

#[distributed_lock(key = "<day>", on_error = explain, on_busy = Skipped::of)]
pub async fn paths(day: &str) -> Skipped {
    Skipped(day.to_owned())
}

pub fn explain(error: Error) -> Skipped {
    drop(error);
    Skipped(String::new())
}

pub struct Skipped(pub String);

impl Skipped {
    fn of(error: Error) -> Self {
        explain(error)
    }

    #[distributed_lock(key = "<self.0>", on_busy = |_| self.answer(&name), on_error = |_| None)]
    pub async fn method(&self, name: String) -> Option<String> {
        Some(name)
    }

    fn answer(&self, name: &str) -> Option<String> {
        (name != self.0).then(|| self.0.clone())
    }
}

fn main() {
    let _future = both(String::new());
    let _future = busy_only("a");
    let _future = unit("a");
    let _future = paths("a");
    let skipped = Skipped(String::new());
    let _future = skipped.method(String::new());
}
