#![deny(warnings, clippy::pedantic)]

pub mod my {
    pub use distlock;
}

macro_rules! locked {
    ($name:ident) => {
        #[$crate::my::distlock::distributed_lock(key = "<id>", crate = $crate::my::distlock)]
        pub async fn $name(id: u8) -> Result<u8, $crate::my::distlock::Error> {
            Ok(id)
        }
    };
}

locked!(one);

fn main() {
    let _future = one(1);
}
