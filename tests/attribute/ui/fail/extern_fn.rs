use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>")]
unsafe extern "C" fn pay(id: u64) -> u64 {
    id
}

type Unused = Error;

fn main() {}
