use std::fmt::{self, Display, Formatter};
use std::sync::Mutex;

use super::*;

/// Records whether the lock is held when it is dropped.
struct Witness {
    client: Client,
    saw: Arc<AtomicBool>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        let locked = at_once(self.client.lock("k").is_locked());
        self.saw.store(locked.expect(MEMORY), Ordering::Relaxed);
    }
}

impl Display for Witness {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("k")
    }
}

/// The output of a future that is ready at the first poll.
fn at_once<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("{MEMORY} without waiting"),
    }
}

fn witness() -> (Client, Arc<AtomicBool>, Witness) {
    let (client, saw) = (Client::in_memory(), Arc::new(AtomicBool::new(false)));
    let witness = Witness {
        client: client.clone(),
        saw: saw.clone(),
    };
    (client, saw, witness)
}

#[distributed_lock(key = "k", client = client)]
async fn unused(client: Client, _witness: Witness) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "k", client = client)]
async fn taken_apart(client: &Client, (_witness, _): (Witness, u8)) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn arguments_are_dropped_before_the_release() {
    let (client, saw, witness) = witness();
    unused(client, witness).await.unwrap();
    assert!(saw.load(Ordering::Relaxed));
}

#[tokio::test]
async fn destructured_arguments_are_dropped_before_the_release() {
    let (client, saw, witness) = witness();
    taken_apart(&client, (witness, 1)).await.unwrap();
    assert!(saw.load(Ordering::Relaxed));
}

#[expect(clippy::manual_async_fn)]
#[distributed_lock(key = "<witness>", client = client)]
fn named_by_the_template(
    client: &Client,
    witness: Witness,
) -> impl Future<Output = Result<(), Error>> {
    async move { Ok(()) }
}

#[expect(clippy::manual_async_fn)]
#[distributed_lock(key = format!("{witness}"), client = client)]
fn named_inside_a_text(
    client: &Client,
    witness: Witness,
) -> impl Future<Output = Result<(), Error>> {
    async move { Ok(()) }
}

#[async_trait::async_trait]
trait TakesApart {
    async fn take_apart(&self, pair: (Witness, u8)) -> Result<(), Error>;
}

#[async_trait::async_trait]
impl TakesApart for Client {
    #[distributed_lock(key = "k", client = self)]
    async fn take_apart(&self, (_witness, _): (Witness, u8)) -> Result<(), Error> {
        Ok(())
    }
}

#[tokio::test]
async fn arguments_of_an_async_block_used_by_the_key_are_dropped_before_the_release() {
    let (client, saw, witness) = witness();
    named_by_the_template(&client, witness).await.unwrap();
    assert!(saw.load(Ordering::Relaxed));
    let (client, saw, witness) = self::witness();
    named_inside_a_text(&client, witness).await.unwrap();
    assert!(saw.load(Ordering::Relaxed));
    let (client, saw, witness) = self::witness();
    client.take_apart((witness, 1)).await.unwrap();
    assert!(saw.load(Ordering::Relaxed));
}

const UNPOISONED: &str = "nobody panics while writing";

/// Records its name when it is dropped.
struct Named(Arc<Mutex<Vec<&'static str>>>, &'static str);

impl Drop for Named {
    fn drop(&mut self) {
        let mut dropped = self.0.lock().expect(UNPOISONED);
        dropped.push(self.1);
    }
}

impl Named {
    #[expect(unused_variables)]
    async fn plain(self, a: Self, (b, c): (Self, Self), d: Self) -> Result<(), Error> {
        let _used = &b;
        Ok(())
    }

    #[distributed_lock(key = "k", client = Client::in_memory())]
    async fn locked(self, _a: Self, (b, _c): (Self, Self), _d: Self) -> Result<(), Error> {
        let _used = &b;
        Ok(())
    }
}

/// The order in which a call drops its arguments.
async fn drops<F>(call: impl FnOnce([Named; 5]) -> F) -> Vec<&'static str>
where
    F: Future<Output = Result<(), Error>>,
{
    let dropped = Arc::default();
    let named = ["self", "a", "b", "c", "d"].map(|name| Named(Arc::clone(&dropped), name));
    call(named).await.expect(MEMORY);
    let dropped = dropped.lock().expect(UNPOISONED);
    dropped.clone()
}

#[tokio::test]
async fn arguments_are_dropped_in_the_same_order_as_without_the_attribute() {
    let plain = drops(|[this, a, b, c, d]| this.plain(a, (b, c), d)).await;
    let locked = drops(|[this, a, b, c, d]| this.locked(a, (b, c), d)).await;
    assert_eq!(plain, ["d", "c", "b", "a", "self"]);
    assert_eq!(locked, plain);
}

#[distributed_lock(key = "k", client = client)]
async fn returns_early(client: &Client, early: bool) -> Result<u8, Error> {
    if early {
        return Ok(1);
    }
    Err(Error::NoClient)?;
    Ok(2)
}

#[tokio::test]
async fn return_and_question_mark_leave_the_body_and_release() {
    let client = Client::in_memory();
    assert_eq!(returns_early(&client, true).await.unwrap(), 1);
    assert!(!held(&client, "k").await);
    returns_early(&client, false).await.unwrap_err();
    assert!(!held(&client, "k").await);
}

#[distributed_lock(key = "k", client = client)]
async fn never_ends(client: &Client, panics: bool) -> Result<(), Error> {
    assert!(!panics, "on purpose");
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn dropped_future_releases() {
    let client = Client::in_memory();
    let long = timeout(Duration::from_secs(1), never_ends(&client, false));
    assert!(long.await.is_err());
    returns_early(&client, true).await.unwrap();
}

#[tokio::test]
async fn panic_releases() {
    let client = Client::in_memory();
    let task = tokio::spawn({
        let client = client.clone();
        async move { never_ends(&client, true).await }
    });
    assert!(task.await.unwrap_err().is_panic());
    returns_early(&client, true).await.unwrap();
}
