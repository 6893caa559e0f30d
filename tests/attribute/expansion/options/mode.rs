use distlock::{Error, distributed_lock};

use super::ok;

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

#[tokio::test]
async fn runs() {
    assert_eq!(ok(show(1)).await, 1);
    assert_eq!(ok(rebuild(1)).await, 1);
    assert_eq!(ok(sell(1)).await, 1);
    ok(passed()).await;
    ok(passed_in_quotes()).await;
}
