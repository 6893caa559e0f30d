use std::time::Duration;

use distlock::Client;

fn pauses(client: &Client) {
    let _lock = client
        .fair_lock("order:42")
        .backoff(Duration::from_millis(5), Duration::from_secs(1));
}

fn main() {}
