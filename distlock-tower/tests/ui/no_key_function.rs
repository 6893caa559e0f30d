use axum::{Router, routing::get};
use distlock_tower::LockLayer;

fn main() {
    let layer = LockLayer::new(distlock::Client::in_memory());
    let _app: Router = Router::new().route("/", get("")).route_layer(layer);
}
