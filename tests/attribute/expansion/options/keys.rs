//! Lists of keys: templates, expressions and spreads.

use distlock::{Client, Error, distributed_lock, with_client};

struct Order {
    id: u64,
    warehouse: String,
    items: Vec<String>,
}

const NIGHTLY: &str = "nightly";

#[distributed_lock(keys = ["order:<o.id>", "stock:<o.warehouse>", NIGHTLY, ..o.items.iter().map(|item| format!("item:{item}"))], wait = "5s")]
async fn place(client: &Client, o: &Order) -> Result<Vec<bool>, Error> {
    let mut locked = Vec::new();
    for key in [
        "order:42",
        "stock:north",
        "nightly",
        "item:a",
        "item:b",
        "item:c",
    ] {
        locked.push(client.lock(key).is_locked().await?);
    }
    Ok(locked)
}

#[distributed_lock(keys = keys.iter().copied())]
async fn all(keys: Vec<&'static str>) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["a", ..maybe.as_deref(), ..rest], client = client)]
async fn some(client: &Client, maybe: Option<String>, rest: &[String]) -> Result<bool, Error> {
    client.lock("b").is_locked().await
}

#[distributed_lock(keys = ["a:<id>", "b:<id>"])]
async fn nested(id: u64) -> Result<u64, Error> {
    match id {
        0 => Ok(0),
        _ => inner(id).await,
    }
}

#[distributed_lock(key = "b:<id>", wait = 0)]
async fn inner(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[tokio::test]
async fn runs() {
    let client = Client::in_memory();
    with_client(&client, all_at_once(&client)).await.unwrap();
}

async fn all_at_once(client: &Client) -> Result<(), Error> {
    let order = Order {
        id: 42,
        warehouse: "north".into(),
        items: vec!["a".into(), "b".into()],
    };
    let locked = place(client, &order).await?;
    assert_eq!(locked, [true, true, true, true, true, false]);
    assert!(!client.lock("item:a").is_locked().await?);
    all(vec!["x", "y"]).await?;
    assert!(matches!(all(vec![]).await, Err(Error::NoKeys)));
    assert!(matches!(
        all(vec!["x", ""]).await,
        Err(Error::InvalidKey { .. })
    ));
    assert!(some(client, Some("b".into()), &[]).await?);
    assert!(!some(client, None, &["c".into()]).await?);
    assert_eq!(nested(3).await?, 3);
    Ok(())
}
