use axum::extract::Path;
use distlock_tower::LockLayer;

fn main() {
    let prefix = std::rc::Rc::new("order");
    LockLayer::new(distlock::Client::in_memory()).key(move |Path(id): Path<u64>| format!("{prefix}:{id}"));
}
