use std::fmt::{Debug, Display};

use distlock::{Error, distributed_lock};

use super::ok;

#[distributed_lock(key = "<a>:<b.as_ref()>:<N>")]
pub async fn pair<A, B, E, const N: usize>(a: A, b: B) -> Result<[B; N], E>
where
    A: Display + Send,
    B: AsRef<str> + Copy + Debug,
    E: From<Error>,
{
    drop(a);
    Ok([b; N])
}

pub struct Store<T>(pub T);

impl<T: Display> Store<T> {
    #[distributed_lock(key = "<self.0>:<key>")]
    pub async fn get<K>(&self, key: K) -> Result<(&T, K), Error>
    where
        K: Display,
    {
        Ok((&self.0, key))
    }
}

#[tokio::test]
async fn runs() {
    assert_eq!(ok(pair::<_, _, Error, 2>(1, "b")).await, ["b", "b"]);
    assert_eq!(ok(Store(1).get("key")).await, (&1, "key"));
}
