//! Functions in modules that forbid the lints of generated code, and parameters whose lints are set.
//!
//! An `allow` of a forbidden lint does not compile.

use distlock::{Client, Error, distributed_lock};

#[forbid(
    unused,
    unreachable_code,
    warnings,
    clippy::empty_loop,
    clippy::diverging_sub_expression,
    clippy::needless_return,
    clippy::let_unit_value,
    clippy::used_underscore_binding,
    clippy::pedantic
)]
pub mod forbidding {
    use super::*;

    #[distributed_lock(key = "k:<id>", client = client)]
    pub(crate) async fn locked(client: &Client, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[distributed_lock(key = "unit", client = client, on_error = |_| ())]
    pub(crate) async fn unit(client: &Client) {}

    #[distributed_lock(key = "later", client = client)]
    pub(crate) async fn later(client: &Client, _later: String) -> Result<(), Error> {
        Ok(())
    }
}

/// The expectation is fulfilled: nothing uses `count`.
#[distributed_lock(key = "expects", client = client)]
async fn expects(
    client: &Client,
    #[expect(unused_variables, reason = "for later")] count: String,
) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "allows", client = client)]
async fn allows(client: &Client, #[allow(unused_variables)] count: u64) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn functions_under_forbidden_lints_run() {
    let client = Client::in_memory();
    assert_eq!(forbidding::locked(&client, 7).await.unwrap(), 7);
    forbidding::unit(&client).await;
    forbidding::later(&client, String::new()).await.unwrap();
    expects(&client, String::new()).await.unwrap();
    allows(&client, 1).await.unwrap();
}
