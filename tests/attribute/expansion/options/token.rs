use distlock::{Error, distributed_lock};

use super::ok;

#[distributed_lock(key = "report:<day>", mode = "fenced", token = token)]
pub async fn rebuild(day: u32) -> Result<u64, Error> {
    let _: u32 = day;
    Ok(token)
}

pub struct Store {
    pub name: String,
    pub token: u64,
}

impl Store {
    #[distributed_lock(key = "<self.name>", mode = fenced, token = token, lease = "20s")]
    pub async fn write(&mut self) -> Result<bool, Error> {
        let newer = token > self.token;
        self.token = self.token.max(token);
        Ok(newer)
    }
}

// The token is a variable of the body, so the body may shadow it.
#[distributed_lock(key = "a", mode = fenced, token = number)]
pub async fn hidden() -> Result<String, Error> {
    let number = number.to_string();
    Ok(number)
}

macro_rules! fenced {
    ($name:ident, $token:ident, $body:expr) => {
        #[distributed_lock(key = "k", mode = fenced, token = $token)]
        pub async fn $name() -> Result<u64, Error> {
            Ok($body)
        }
    };
}

fenced!(passed, number, number + 1);

#[tokio::test]
async fn runs() {
    let mut store = Store {
        name: "a".to_owned(),
        token: 0,
    };
    assert!(ok(store.write()).await);
    assert!(ok(rebuild(1)).await > 0);
    assert_ne!(ok(hidden()).await, "0");
    assert!(ok(passed()).await > 1);
}
