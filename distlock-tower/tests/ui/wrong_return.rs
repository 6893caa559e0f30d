use axum::extract::Path;
use distlock_tower::LockLayer;

fn main() {
    LockLayer::new(distlock::Client::in_memory()).key(|Path(id): Path<u64>| id);
}
