//! Calls what needs features that are off here. It must not compile, and `.ci/packages` reads what the compiler says.

use distlock::{Client, MemoryServer};
use distlock_tower::LockLayer;

struct Pick {
    article: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = MemoryServer::new();
    server.take_down();
    server.until_waiting("order:42", 1).await;
    let builder = Client::builder().metrics_key_class(|_| "order");
    let client = builder.tls_ca_pem("").in_memory(&server);
    let layer = LockLayer::new(Client::in_memory());
    let _layer = layer.key_form(1_024, |pick: Pick| format!("article:{}", pick.article));
    drop(client);
}
