use super::{ok, run};

pub mod functions {
    #![no_implicit_prelude]

    use ::distlock::{Client, Error, distributed_lock};
    use ::std::clone::Clone as _;
    use ::std::result::Result::{self, Err, Ok};
    use ::std::string::String;
    use ::std::time::Duration;

    #[distributed_lock(keys = ["<id>", ..more], wait = 0, lease = "5s", hold_at_least = "1s", mode = "spin", client = client, on_busy = |_| Ok(0), on_error = Err, on_unavailable = "run", condition = id > 0)]
    pub async fn every_option(id: u32, more: [&str; 2], client: &Client) -> Result<u32, Error> {
        Ok(id)
    }

    #[distributed_lock(key = "<id>", wait = Duration::MAX)]
    pub async fn early_return(id: u32) -> Result<u32, Error> {
        if id > 1 {
            return Ok(0);
        }
        Ok(id)
    }

    #[distributed_lock(key = id.clone(), mode = fenced, token = token)]
    pub async fn token(id: String) -> Result<(String, u64), Error> {
        Ok((id, token))
    }

    #[distributed_lock(key = "k", on_error = |_| 0)]
    pub async fn plain_value() -> u32 {
        1
    }
}

#[tokio::test]
async fn runs() {
    let client = distlock::Client::in_memory();
    assert_eq!(ok(functions::every_option(1, ["a", "b"], &client)).await, 1);
    assert_eq!(ok(functions::early_return(1)).await, 1);
    assert_eq!(ok(functions::token("id".into())).await.0, "id");
    assert_eq!(run(functions::plain_value()).await, 1);
}
