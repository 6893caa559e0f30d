use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>")]
gen fn pay(id: u64) -> Result<u64, Error> {
    loop {}
}

fn main() {}
