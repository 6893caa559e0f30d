use super::*;

#[derive(Default)]
struct Meter {
    inside: AtomicU32,
    most: AtomicU32,
}

impl Meter {
    async fn visit(&self) {
        let inside = self.inside.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(inside, Ordering::Relaxed);
        sleep(Duration::from_millis(10)).await;
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

#[distributed_lock(key = "<key>", wait = "1s")]
async fn outer(key: &str) -> Result<(), Error> {
    inner(key).await
}

#[distributed_lock(key = "<key>", wait = "1s")]
async fn inner(key: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "<key>", wait = "1s")]
async fn metered(key: &str, meter: &Meter) -> Result<(), Error> {
    meter.visit().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn nested_call_with_the_same_key_reenters() {
    with_client(Client::in_memory(), outer("a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_with_the_same_key_exclude_each_other() {
    let meter = Meter::default();
    let pair = async { tokio::join!(metered("a", &meter), metered("a", &meter)) };
    let (one, two) = with_client(Client::in_memory(), pair).await;
    one.and(two).unwrap();
    assert_eq!(meter.most.into_inner(), 1);
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_with_different_keys_run_together() {
    let meter = Meter::default();
    let pair = async { tokio::join!(metered("a", &meter), metered("b", &meter)) };
    let (one, two) = with_client(Client::in_memory(), pair).await;
    one.and(two).unwrap();
    assert_eq!(meter.most.into_inner(), 2);
}
