use std::borrow::Cow;

use distlock::{Error, distributed_lock};

use super::ok;

#[distributed_lock(key = "<name>")]
pub async fn named<'a>(name: &'a str, other: &str) -> Result<Cow<'a, str>, Error> {
    if name == other {
        return Ok(name.into());
    }
    Ok(Cow::Owned(format!("{name}{other}")))
}

pub struct Words<'w>(pub &'w [&'w str]);

impl<'w> Words<'w> {
    #[distributed_lock(key = "<self.0[0]>")]
    pub async fn first(&self) -> Result<&'w str, Error> {
        Ok(self.0[0])
    }

    #[distributed_lock(key = "<self.0.len()>")]
    pub async fn all(&mut self) -> Result<&mut Self, Error> {
        Ok(self)
    }
}

#[tokio::test]
async fn runs() {
    assert_eq!(ok(named("a", "b")).await, "ab");
    let mut words = Words(&["a"]);
    assert_eq!(ok(words.first()).await, "a");
    assert_eq!(ok(words.all()).await.0, ["a"]);
}
