#![deny(warnings, clippy::pedantic)]

use distlock::{Error, distributed_lock};

#[distributed_lock(key = "report:<day>", mode = "read")]
pub async fn show(day: u32) -> Result<u32, Error> {
    Ok(day)
}

#[distributed_lock(key = "report:<day>", mode = write)]
pub async fn rebuild(day: u32) -> Result<u32, Error> {
    Ok(day)
}

#[distributed_lock(keys = ["stock:<item>", "item:<item>"], mode = fair, wait = "5s")]
pub async fn sell(item: u32) -> Result<u32, Error> {
    Ok(item)
}

macro_rules! in_mode {
    ($name:ident, $mode:expr) => {
        #[distributed_lock(key = "k", mode = $mode)]
        pub async fn $name() -> Result<(), Error> {
            Ok(())
        }
    };
}

in_mode!(passed, non_reentrant_fair);
in_mode!(passed_in_quotes, "spin");

fn main() {
    let _future = show(1);
    let _future = rebuild(1);
    let _future = sell(1);
    let _future = passed();
    let _future = passed_in_quotes();
}
