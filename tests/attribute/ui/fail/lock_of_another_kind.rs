use distlock::{Client, Error, Lock};

async fn sell(lock: &Lock) -> Result<(), Error> {
    lock.acquire().run(async {}).await
}

fn main() {
    let _ = sell(&Client::in_memory().fair_lock("order:42"));
}
