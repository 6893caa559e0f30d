#![deny(warnings, clippy::pedantic)]

use std::sync::{Arc, LazyLock};

use distlock::{Client, Error, distributed_lock};

static LOCKS: LazyLock<Client> = LazyLock::new(Client::in_memory);

pub struct App {
    pub locks: Client,
}

impl AsRef<Client> for App {
    fn as_ref(&self) -> &Client {
        &self.locks
    }
}

#[distributed_lock(key = "a", client = app)]
pub async fn as_ref(app: &App) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", client = app.locks)]
pub async fn by_value(app: App) -> Result<Client, Error> {
    Ok(app.locks)
}

#[distributed_lock(key = "a", client = client)]
pub async fn shared(client: Arc<Client>) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", client = *LOCKS)]
pub async fn constant() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", client = Client::in_memory())]
pub async fn fresh() -> Result<(), Error> {
    Ok(())
}

fn main() {
    let _future = by_value(App {
        locks: Client::in_memory(),
    });
    let _future = shared(Arc::new(Client::in_memory()));
    let _future = constant();
    let _future = fresh();
}
