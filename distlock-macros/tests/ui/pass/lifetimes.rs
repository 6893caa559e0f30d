#![deny(warnings, clippy::pedantic)]

use std::borrow::Cow;

use distlock::{Error, distributed_lock};

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

fn main() {
    let _future = named("a", "b");
    let _future = Words(&["a"]).first();
}
