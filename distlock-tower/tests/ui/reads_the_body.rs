use axum::Json;
use distlock_tower::LockLayer;

fn main() {
    LockLayer::new(distlock::Client::in_memory()).key(|Json(id): Json<u64>| format!("order:{id}"));
}
