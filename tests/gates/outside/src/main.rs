//! One lock, one attribute and one layer: each of them works, and is refused while the key is held. A URL with TLS is refused
//! with what is missing.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use distlock::{Client, Error, distributed_lock};
use distlock_tower::LockLayer;
use tower::ServiceExt;

#[distributed_lock(key = "order:<id>", client = client, wait = 0)]
async fn pay(client: &Client, id: u64) -> Result<u64, Error> {
    Ok(id)
}

/// `gen` is a name in this edition, and a keyword in that of the attribute.
struct Node {
    gen: u64,
}

#[distributed_lock(key = "node:<node.gen>", client = client, wait = 0)]
async fn join(client: &Client, node: Node) -> Result<u64, Error> {
    Ok(node.gen)
}

/// In this edition the call borrows the slice, which the body needs as well.
#[allow(boxed_slice_into_iter)]
#[distributed_lock(key = "ids:<ids.into_iter().map(u64::to_string).collect::<String>()>", client = client, wait = 0)]
async fn count(client: &Client, ids: Box<[u64]>) -> Result<usize, Error> {
    Ok(ids.len())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::in_memory();
    let layer = LockLayer::new(client.clone())
        .key(|Path(id): Path<u64>| format!("order:{id}"))
        .wait(Duration::ZERO);
    let app = Router::new().route("/orders/{id}", post(async || "paid").route_layer(layer));
    let status = async || {
        let request = Request::post("/orders/42").body(Body::empty())?;
        Ok::<_, Box<dyn std::error::Error>>(app.clone().oneshot(request).await?.status())
    };

    assert_eq!(pay(&client, 42).await?, 42);
    assert_eq!(join(&client, Node { gen: 3 }).await?, 3);
    assert_eq!(count(&client, Box::new([1, 2])).await?, 2);
    assert_eq!(status().await?, StatusCode::OK);

    let guard = client.lock("order:42").acquire().await?;
    assert!(pay(&client, 42).await.is_err_and(|error| error.is_busy()));
    assert_eq!(status().await?, StatusCode::CONFLICT);
    guard.release().await?;

    // These features have no TLS: the error names the one to turn on.
    for url in ["rediss://h", "rediss+cluster://h", "rediss+sentinel://h/s"] {
        let Err(error) = Client::connect(url).await else {
            return Err(format!("{url} without TLS").into());
        };
        assert!(matches!(error, Error::InvalidUrl { .. }), "{error}");
        assert!(error.to_string().contains("`tls-rustls`"), "{error}");
    }

    println!("one lock, one attribute and one layer work");
    Ok(())
}
