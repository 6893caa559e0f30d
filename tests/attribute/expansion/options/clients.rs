use std::sync::{Arc, LazyLock};

use distlock::{Client, Error, LockSource, Quorum, distributed_lock};

use super::ok;

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

pub struct Servers {
    pub locks: Quorum,
}

impl AsRef<Quorum> for Servers {
    fn as_ref(&self) -> &Quorum {
        &self.locks
    }
}

#[distributed_lock(key = "a", client = servers)]
pub async fn red_lock(servers: &Quorum) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", client = servers)]
pub async fn shared_red_lock(servers: Arc<Quorum>) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", client = servers)]
pub async fn as_ref_red_lock(servers: &Servers) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", client = locks)]
pub async fn either(locks: LockSource) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", client = LockSource::from(servers))]
pub async fn made(servers: &Quorum) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", client = client)]
pub async fn generic<C: AsRef<Client>>(client: C) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", client = *client)]
pub async fn dynamic(client: Box<dyn AsRef<Client> + Send + Sync>) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn runs() {
    let locks = Client::in_memory();
    ok(as_ref(&App {
        locks: locks.clone(),
    }))
    .await;
    drop(ok(by_value(App { locks })).await);
    ok(shared(Arc::new(Client::in_memory()))).await;
    ok(constant()).await;
    ok(fresh()).await;
    let servers = Servers {
        locks: Quorum::new([Client::in_memory()]),
    };
    ok(red_lock(&servers.locks)).await;
    ok(shared_red_lock(Arc::new(servers.locks.clone()))).await;
    ok(as_ref_red_lock(&servers)).await;
    ok(either(servers.locks.clone().into())).await;
    ok(made(&servers.locks)).await;
    ok(generic(Client::in_memory())).await;
    ok(dynamic(Box::new(Client::in_memory()))).await;
}
