use super::ok;

pub mod my {
    pub use distlock;
}

#[my::distlock::distributed_lock(key = "a", crate = my::distlock)]
pub async fn path() -> Result<(), my::distlock::Error> {
    Ok(())
}

#[my::distlock::distributed_lock(key = "<id>", wait = "1s", crate = "self::my::distlock")]
pub async fn string(id: u8) -> Result<(), my::distlock::Error> {
    Ok(())
}

#[tokio::test]
async fn runs() {
    ok(path()).await;
    ok(string(1)).await;
}
