use super::ok;

pub mod my {
    pub use distlock;
}

macro_rules! locked {
    ($name:ident) => {
        #[$crate::expansion::surroundings::dollar_crate::my::distlock::distributed_lock(key = "<id>", crate = $crate::expansion::surroundings::dollar_crate::my::distlock)]
        pub async fn $name(id: u8) -> Result<u8, $crate::expansion::surroundings::dollar_crate::my::distlock::Error> {
            Ok(id)
        }
    };
}

locked!(one);

#[tokio::test]
async fn runs() {
    assert_eq!(ok(one(1)).await, 1);
}
