use std::time::Duration;

use distlock_tower::LockLayer;
use http::request::Parts;

fn main() {
    LockLayer::new(distlock::Client::in_memory())
        .wait(Duration::ZERO)
        .key(|_: &Parts| "import");
}
