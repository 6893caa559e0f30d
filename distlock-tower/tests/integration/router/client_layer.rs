//! The layer that carries a client to handlers, which run in tasks that no `with_client` reaches.

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::post;
use distlock::{Client, Error, distributed_lock, inherit, with_client};
use distlock_tower::{ClientLayer, LockLayer};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::{JoinSet, spawn_blocking};

/// Whether `here` is the client of the lock that this function takes.
#[distributed_lock(key = "order:<id>", wait = "5s")]
async fn locks_with(here: Client, id: u64) -> Result<bool, Error> {
    here.lock(format!("order:{id}")).is_locked().await
}

/// Calls it in the handler's task, in tasks of its own and on a thread.
async fn pay(State(here): State<Client>, Path(id): Path<u64>) -> String {
    let mut answers = vec![locks_with(here.clone(), id).await];
    let call = || inherit(locks_with(here.clone(), id));
    let mut tasks = JoinSet::new();
    tasks.spawn(call());
    let blocking = call();
    tasks.spawn(async {
        spawn_blocking(|| Handle::current().block_on(blocking))
            .await
            .unwrap()
    });
    answers.extend(tasks.join_all().await);
    answers.extend(tokio::spawn(call()).await);
    format!(
        "{:?}",
        answers.into_iter().map(Result::ok).collect::<Vec<_>>()
    )
}

fn router(client: &Client) -> Router {
    Router::new()
        .route("/orders/{id}/pay", post(pay))
        .with_state(client.clone())
}

async fn served(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async { axum::serve(listener, app).await });
    let request = crate::support::http_client().post(format!("http://{address}/orders/42/pay"));
    let answer = request.send().await.unwrap().text().await.unwrap();
    serving.abort();
    answer
}

const ALL: &str = "[Some(true), Some(true), Some(true), Some(true)]";

#[tokio::test]
async fn handlers_behind_axum_serve_and_their_inherited_tasks_use_the_client_of_the_layer() {
    let client = Client::in_memory();
    let app = router(&client);
    let unreached = with_client(&client, served(app.clone())).await;
    assert_eq!(unreached, "[None, None, None, None]");
    let app = app.layer(ClientLayer::new(client));
    assert_eq!(served(app).await, ALL);
}

#[tokio::test]
async fn handlers_behind_axum_serve_use_the_client_that_is_installed_in_their_runtime() {
    let client = Client::in_memory();
    let _installed = client.install_scoped();
    assert_eq!(served(router(&client)).await, ALL);
}

#[tokio::test]
async fn client_of_the_layer_reaches_handlers_that_run_to_completion_and_nested_layers_win() {
    let (client, other) = (Client::in_memory(), Client::in_memory());
    let lock = LockLayer::new(client.clone()).key(|Path(id): Path<u64>| format!("request:{id}"));
    let app = Router::new()
        .route(
            "/orders/{id}/pay",
            post(pay).route_layer(lock.run_to_completion()),
        )
        .with_state(client.clone())
        .layer(ClientLayer::new(client))
        .layer(ClientLayer::new(other));
    assert_eq!(served(app).await, ALL);
}
