use axum::extract::State;
use distlock_tower::LockLayer;

fn main() {
    LockLayer::new(distlock::Client::in_memory()).key(|State(region): State<String>| region);
}
