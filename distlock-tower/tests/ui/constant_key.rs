use distlock_tower::LockLayer;

fn main() {
    LockLayer::new(distlock::Client::in_memory()).key("import");
}
