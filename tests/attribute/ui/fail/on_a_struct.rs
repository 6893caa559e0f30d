use distlock::{Error, distributed_lock};

#[distributed_lock(key = "shop")]
struct Shop;

type Unused = Error;

fn main() {}
