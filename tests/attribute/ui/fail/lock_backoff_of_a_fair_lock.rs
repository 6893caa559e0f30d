use std::time::Duration;

use distlock::Client;

fn main() {
    let lock = Client::in_memory().fair_lock("order:42");
    lock.backoff(Duration::from_millis(5), Duration::from_secs(1));
}
