use distlock::{Error, distributed_lock};

use super::{ok, run};

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

#[tokio::test]
async fn runs() {
    let day = || "monday".to_owned();
    assert_eq!(run(both(day())).await.day, "monday");
    ok(busy_only("monday")).await;
    run(unit("monday")).await;
    assert_eq!(run(paths("monday")).await.0, "monday");
    let skipped = Skipped("a".to_owned());
    assert_eq!(run(skipped.method(day())).await, Some(day()));
}
