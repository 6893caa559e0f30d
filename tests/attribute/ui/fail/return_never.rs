use distlock::distributed_lock;

#[distributed_lock(key = "leader", on_error = |_| panic!())]
async fn lead() -> ! {
    std::future::pending().await
}

fn main() {}
