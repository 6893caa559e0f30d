//! Annotated functions of two clients, as two processes would call them.

use std::time::Duration;

use distlock::{Client, Error, distributed_lock};

use crate::conformance::stage::Stage;

struct Order {
    id: u64,
    warehouse: &'static str,
    items: Vec<u64>,
}

#[distributed_lock(
    keys = ["order:<o.id>", "stock:<o.warehouse>", ..o.items.iter().map(|item| format!("item:{item}"))],
    client = client,
    wait = 0,
)]
async fn place(client: &Client, other: &Client, o: &Order) -> Result<usize, Error> {
    let mut locked = 0;
    for key in ["order:42", "stock:north", "item:7", "item:9"] {
        locked += usize::from(other.lock(key).is_locked().await?);
    }
    Ok(locked)
}

async fn order_stock_and_items_are_one_lock(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let order = Order {
        id: 42,
        warehouse: "north",
        items: vec![9, 7],
    };
    assert_eq!(place(&client, &other, &order).await.unwrap(), 4);
    let item = other.lock("item:7").acquire().await.unwrap();
    let error = place(&client, &other, &order).await.unwrap_err();
    assert!(error.is_busy(), "{error}");
    item.release().await.unwrap();
    assert_eq!(place(&other, &client, &order).await.unwrap(), 4);
}

#[distributed_lock(key = "report", client = client, wait = 0, mode = "write")]
async fn write(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "report", client = client, wait = 0, mode = "read")]
async fn read(client: &Client, others: &[&Client]) -> Result<(), Error> {
    let [next, rest @ ..] = others else {
        return Ok(());
    };
    let error = write(next).await.unwrap_err();
    assert!(error.is_busy(), "{error}");
    Box::pin(read(next, rest)).await
}

async fn readers_of_all_clients_share_and_writers_wait(stage: &Stage) {
    let clients = [
        stage.client().await,
        stage.client().await,
        stage.client().await,
    ];
    let [one, two, three] = &clients;
    read(one, &[two, three]).await.unwrap();
    write(one).await.unwrap();
}

#[distributed_lock(key = "account", client = client, mode = "fenced", token = token)]
async fn charge(client: &Client) -> Result<u64, Error> {
    Ok(token)
}

async fn tokens_grow_whichever_client_has_the_lock(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let mut newest = 0;
    for client in [&client, &other, &other, &client] {
        let token = charge(client).await.unwrap();
        assert!(token > newest, "{token} after {newest}");
        newest = token;
    }
}

#[distributed_lock(key = "nightly", client = client, wait = 0, hold_at_least = rest, on_busy = |_| Ok(false))]
async fn nightly(client: &Client, rest: Duration) -> Result<bool, Error> {
    Ok(true)
}

async fn job_runs_once_in_a_while_on_one_of_all(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let an_hour = Duration::from_secs(3600);
    assert!(nightly(&client, an_hour).await.unwrap());
    assert!(!nightly(&other, an_hour).await.unwrap());
    assert!(!nightly(&client, an_hour).await.unwrap());
    assert!(client.lock("nightly").force_release().await.unwrap());
    assert!(nightly(&other, Duration::ZERO).await.unwrap());
    assert!(nightly(&client, Duration::ZERO).await.unwrap());
}

on_every_backend! {
    order_stock_and_items_are_one_lock,
    readers_of_all_clients_share_and_writers_wait,
    tokens_grow_whichever_client_has_the_lock,
    job_runs_once_in_a_while_on_one_of_all,
}
