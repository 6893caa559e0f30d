use axum::extract::Path;
use distlock_tower::LockLayer;

struct NotFound;

fn main() {
    LockLayer::new(distlock::Client::in_memory())
        .key(|Path(id): Path<u64>| if id == 0 { Err(NotFound) } else { Ok(format!("order:{id}")) });
}
