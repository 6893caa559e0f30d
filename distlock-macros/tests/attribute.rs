//! What an annotated function does at run time: each option both ways, and the promises of its documentation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use distlock::{Client, Error, distributed_lock, with_client};
use tokio::time::{Instant, sleep, timeout};

const MEMORY: &str = "the memory backend answers";
const LONG: Duration = Duration::from_secs(600);

/// Whether somebody holds `key`.
async fn held(client: &Client, key: &str) -> bool {
    client.lock(key).is_locked().await.expect(MEMORY)
}

/// The output of a future that must not wait for ever. Needs paused time.
async fn soon<F: Future>(future: F) -> F::Output {
    timeout(LONG, future).await.expect("it waits for ever")
}

mod keys {
    use super::*;

    struct Order {
        id: u64,
    }

    #[distributed_lock(key = "{pay}:<order.id>:<name.to_uppercase()>:<<<*count>>>", client = client)]
    async fn template(
        client: &Client,
        order: Order,
        name: &str,
        count: &u8,
    ) -> Result<bool, Error> {
        let key = format!("{{pay}}:{}:{}:<{count}>", order.id, name.to_uppercase());
        Ok(held(client, &key).await)
    }

    #[tokio::test]
    async fn template_renders_its_expressions() {
        let client = Client::in_memory();
        let order = Order { id: 7 };
        assert!(template(&client, order, "ab", &3).await.unwrap());
        assert!(!held(&client, "{pay}:7:AB:<3>").await);
    }

    #[distributed_lock(key = format!("order:{id:04}"), client = client)]
    async fn expression(client: &Client, id: u64) -> Result<bool, Error> {
        Ok(held(client, "order:0042").await)
    }

    #[tokio::test]
    async fn expression_is_the_whole_key() {
        assert!(expression(&Client::in_memory(), 42).await.unwrap());
    }

    #[distributed_lock(key = "<tenant>:<id>", client = client)]
    async fn parts(client: &Client, tenant: &str, id: &str, ran: &AtomicBool) -> Result<(), Error> {
        ran.store(true, Ordering::Relaxed);
        Ok(())
    }

    #[tokio::test]
    async fn placeholder_that_renders_to_nothing_is_an_error_and_the_body_does_not_run() {
        let (client, ran) = (Client::in_memory(), AtomicBool::new(false));
        for (tenant, id) in [("", "1"), ("a", "")] {
            let error = parts(&client, tenant, id, &ran).await.unwrap_err();
            assert!(matches!(error, Error::InvalidKey { .. }), "{error:?}");
        }
        assert!(!ran.load(Ordering::Relaxed));
        parts(&client, "a", "1", &ran).await.unwrap();
        assert!(ran.load(Ordering::Relaxed));
    }

    #[distributed_lock(key = key, client = client)]
    async fn whole(client: &Client, key: &str) -> Result<(), Error> {
        Ok(())
    }

    #[tokio::test]
    async fn empty_whole_key_is_an_error() {
        let error = whole(&Client::in_memory(), "").await.unwrap_err();
        assert!(matches!(error, Error::InvalidKey { .. }), "{error:?}");
    }
}

mod wait {
    use super::*;

    #[distributed_lock(key = "k", client = client, wait = "2s")]
    async fn text(client: &Client) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "k", client = client, wait = wait)]
    async fn expression(client: &Client, wait: Duration) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "k", client = client, wait = 0)]
    async fn none(client: &Client) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "k", client = client)]
    async fn without_limit(client: &Client) -> Result<(), Error> {
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn held_for_longer_than_the_wait_is_busy_when_it_is_over() {
        let client = Client::in_memory();
        let _guard = client.lock("k").acquire().await.unwrap();
        let start = Instant::now();
        assert!(soon(text(&client)).await.unwrap_err().is_busy());
        assert_eq!(start.elapsed().as_secs(), 2);
        let wait = Duration::from_secs(3);
        assert!(soon(expression(&client, wait)).await.unwrap_err().is_busy());
        assert_eq!(start.elapsed().as_secs(), 5);
        assert!(soon(none(&client)).await.unwrap_err().is_busy());
        assert_eq!(start.elapsed().as_secs(), 5);
        assert!(timeout(LONG, without_limit(&client)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn freed_within_the_wait_is_granted() {
        let client = Client::in_memory();
        let guard = client.lock("k").acquire().await.unwrap();
        let freed = async {
            sleep(Duration::from_secs(1)).await;
            guard.release().await.unwrap();
        };
        let (waited, ()) = tokio::join!(text(&client), freed);
        waited.unwrap();
        none(&client).await.unwrap();
        without_limit(&client).await.unwrap();
    }
}

mod lease {
    use super::*;

    #[distributed_lock(key = "k", client = client, lease = "1s")]
    async fn fixed(client: &Client, work: Duration) -> Result<(), Error> {
        sleep(work).await;
        Ok(())
    }

    #[distributed_lock(key = "k", client = client)]
    async fn renewed(client: &Client, work: Duration) -> Result<(), Error> {
        sleep(work).await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn body_longer_than_its_lease_is_dropped_and_lost() {
        let client = Client::in_memory();
        fixed(&client, Duration::from_millis(500)).await.unwrap();
        let start = Instant::now();
        let error = fixed(&client, LONG).await.unwrap_err();
        assert!(error.is_lost(), "{error:?}");
        assert!(!error.body_completed());
        assert!(start.elapsed() <= Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_lease_the_watchdog_keeps_it() {
        renewed(&Client::in_memory(), LONG).await.unwrap();
    }
}

mod client {
    use super::*;

    #[distributed_lock(key = "k")]
    async fn ambient(here: &Client) -> Result<bool, Error> {
        Ok(held(here, "k").await)
    }

    struct App(Client);

    impl App {
        #[distributed_lock(key = "k", client = self.0)]
        async fn method(&self) -> Result<bool, Error> {
            Ok(held(&self.0, "k").await)
        }
    }

    // One test, because what is installed is the process's.
    #[tokio::test]
    async fn given_before_scoped_before_installed_before_an_error() {
        let (given, scoped, installed) = (
            Client::in_memory(),
            Client::in_memory(),
            Client::in_memory(),
        );
        let error = ambient(&installed).await.unwrap_err();
        assert!(error.is_misuse(), "{error:?}");
        installed.install();
        assert!(ambient(&installed).await.unwrap());
        with_client(&scoped, async {
            assert!(ambient(&scoped).await.unwrap());
            assert!(App(given).method().await.unwrap());
        })
        .await;
    }
}

mod handlers {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum Made {
        Body,
        OnBusy,
        OnError { completed: bool },
    }

    fn on_error(error: Error) -> Made {
        let completed = error.body_completed();
        Made::OnError { completed }
    }

    #[distributed_lock(key = "k", client = client, wait = 0, on_busy = |_| Made::OnBusy, on_error = on_error)]
    async fn both(client: &Client) -> Made {
        Made::Body
    }

    #[distributed_lock(key = "k", client = client, wait = 0, on_error = on_error)]
    async fn on_error_only(client: &Client) -> Made {
        Made::Body
    }

    #[distributed_lock(key = "k", client = client, wait = 0, on_busy = |_| Ok(Made::OnBusy))]
    async fn on_busy_only(client: &Client) -> Result<Made, Error> {
        Ok(Made::Body)
    }

    #[distributed_lock(key = "<key>", client = client, wait = 0, on_busy = |_| Made::OnBusy, on_error = on_error)]
    async fn invalid(client: &Client, key: &str) -> Made {
        Made::Body
    }

    #[tokio::test(start_paused = true)]
    async fn held_by_another_is_made_by_on_busy_else_by_on_error() {
        let client = Client::in_memory();
        assert_eq!(both(&client).await, Made::Body);
        assert_eq!(on_error_only(&client).await, Made::Body);
        assert_eq!(on_busy_only(&client).await.unwrap(), Made::Body);
        let _guard = client.lock("k").acquire().await.unwrap();
        assert_eq!(soon(both(&client)).await, Made::OnBusy);
        assert_eq!(
            soon(on_error_only(&client)).await,
            Made::OnError { completed: false }
        );
        assert_eq!(soon(on_busy_only(&client)).await.unwrap(), Made::OnBusy);
    }

    #[tokio::test]
    async fn what_is_not_busy_is_never_made_by_on_busy() {
        let made = invalid(&Client::in_memory(), "").await;
        assert_eq!(made, Made::OnError { completed: false });
    }

    #[distributed_lock(key = "k", client = client, on_busy = |_| Made::OnBusy, on_error = on_error)]
    async fn loses(client: &Client) -> Made {
        client.lock("k").force_release().await.expect(MEMORY);
        Made::Body
    }

    #[tokio::test]
    async fn loss_behind_a_body_without_a_result_is_made_by_on_error() {
        assert_eq!(
            loses(&Client::in_memory()).await,
            Made::OnError { completed: true }
        );
    }
}

mod loss {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum Failed {
        Body,
        Lock { completed: bool },
    }

    impl From<Error> for Failed {
        fn from(error: Error) -> Self {
            assert!(error.is_lost(), "{error:?}");
            let completed = error.body_completed();
            Self::Lock { completed }
        }
    }

    #[distributed_lock(key = "k", client = client)]
    async fn loses(client: &Client, result: Result<u8, Failed>) -> Result<u8, Failed> {
        client.lock("k").force_release().await?;
        result
    }

    #[distributed_lock(key = "k", client = client, on_error = |error| Err(error.into()))]
    async fn handled(client: &Client, result: Result<u8, Failed>) -> Result<u8, Failed> {
        client.lock("k").force_release().await?;
        result
    }

    #[tokio::test]
    async fn ok_of_the_body_becomes_the_loss_and_its_error_stays() {
        let client = Client::in_memory();
        let lost = Err(Failed::Lock { completed: true });
        assert_eq!(loses(&client, Ok(1)).await, lost);
        assert_eq!(loses(&client, Err(Failed::Body)).await, Err(Failed::Body));
        assert_eq!(handled(&client, Ok(1)).await, lost);
        assert_eq!(handled(&client, Err(Failed::Body)).await, Err(Failed::Body));
    }
}

mod unavailable {
    use distlock::MemoryServer;
    use distlock::test_util::{Fault, Faults, Op};

    use super::*;

    fn faulty(op: Op) -> Client {
        let faults = Faults::new();
        faults.always(op, Fault::FailBefore);
        let builder = Client::builder().faults(&faults);
        builder.in_memory(&MemoryServer::new()).expect(MEMORY)
    }

    #[distributed_lock(key = "k", client = client, wait = "1s", on_busy = |_| Ok(0))]
    async fn locked(client: &Client, result: Result<u8, Error>) -> Result<u8, Error> {
        result
    }

    #[tokio::test(start_paused = true)]
    async fn no_answer_to_the_acquire_is_not_busy() {
        let error = soon(locked(&faulty(Op::Attempt), Ok(1))).await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_answer_to_the_release_leaves_the_result_of_the_body() {
        let client = faulty(Op::Release);
        assert_eq!(soon(locked(&client, Ok(1))).await.unwrap(), 1);
    }
}

mod reentry {
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
        with_client(&Client::in_memory(), outer("a")).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn calls_side_by_side_exclude_each_other() {
        let meter = Meter::default();
        let pair = async { tokio::join!(metered("a", &meter), metered("a", &meter)) };
        let (one, two) = with_client(&Client::in_memory(), pair).await;
        one.and(two).unwrap();
        assert_eq!(meter.most.into_inner(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_with_other_keys_do_not() {
        let meter = Meter::default();
        let pair = async { tokio::join!(metered("a", &meter), metered("b", &meter)) };
        let (one, two) = with_client(&Client::in_memory(), pair).await;
        one.and(two).unwrap();
        assert_eq!(meter.most.into_inner(), 2);
    }
}

mod ends {
    use super::*;

    /// Says, when it is dropped, whether the lock was held.
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

    /// The output of a future that never waits.
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
    async fn unused(client: Client, witness: Witness) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "k", client = client)]
    async fn taken_apart(client: &Client, (witness, _): (Witness, u8)) -> Result<(), Error> {
        Ok(())
    }

    #[tokio::test]
    async fn arguments_are_dropped_before_the_release() {
        let (client, saw, witness) = witness();
        unused(client, witness).await.unwrap();
        assert!(saw.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn parts_of_arguments_are_too() {
        let (client, saw, witness) = witness();
        taken_apart(&client, (witness, 1)).await.unwrap();
        assert!(saw.load(Ordering::Relaxed));
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
}

mod shapes {
    use super::*;

    #[async_trait::async_trait]
    trait Shop {
        fn client(&self) -> &Client;

        #[distributed_lock(key = "<item>", client = self.client())]
        async fn buy(&self, item: String) -> Result<bool, Error> {
            Ok(held(self.client(), &item).await)
        }

        async fn sell(&mut self, item: &str) -> Result<bool, Error>;
    }

    #[async_trait::async_trait]
    impl Shop for Client {
        fn client(&self) -> &Client {
            self
        }

        #[distributed_lock(key = "<item>", client = self)]
        async fn sell(&mut self, item: &str) -> Result<bool, Error> {
            Ok(held(self, item).await)
        }
    }

    #[tokio::test]
    async fn methods_under_async_trait_hold_the_lock() {
        let mut client = Client::in_memory();
        assert!(client.buy("a".to_owned()).await.unwrap());
        assert!(client.sell("a").await.unwrap());
    }

    #[distributed_lock(key = "k", client = client)]
    fn opaque(client: &Client) -> impl Future<Output = Result<bool, Error>> + Send {
        async move { Ok(held(client, "k").await) }
    }

    #[tokio::test]
    async fn functions_that_return_an_async_block_hold_the_lock() {
        assert!(opaque(&Client::in_memory()).await.unwrap());
    }

    #[distributed_lock(key = "k", client = client)]
    #[tracing::instrument(skip_all)]
    async fn instrumented_below(client: &Client) -> Result<bool, Error> {
        Ok(held(client, "k").await)
    }

    #[tracing::instrument(skip_all)]
    #[distributed_lock(key = "k", client = client)]
    async fn instrumented_above(client: &Client) -> Result<bool, Error> {
        Ok(held(client, "k").await)
    }

    #[tokio::test]
    async fn instrumented_functions_hold_the_lock() {
        let client = Client::in_memory();
        assert!(instrumented_below(&client).await.unwrap());
        assert!(instrumented_above(&client).await.unwrap());
    }

    #[distributed_lock(key = "<depth>", client = client)]
    async fn recursive(client: &Client, depth: u8) -> Result<u8, Error> {
        match depth {
            0 => Ok(0),
            _ => Ok(1 + Box::pin(recursive(client, depth - 1)).await?),
        }
    }

    #[tokio::test]
    async fn recursion_locks_at_each_level() {
        assert_eq!(recursive(&Client::in_memory(), 3).await.unwrap(), 3);
    }

    async fn plain(client: &Client, large: [u8; 4096]) -> Result<usize, Error> {
        sleep(LONG).await;
        Ok(large.len() + usize::from(held(client, "k").await))
    }

    #[distributed_lock(key = "k", client = client)]
    async fn locked(client: &Client, large: [u8; 4096]) -> Result<usize, Error> {
        sleep(LONG).await;
        Ok(large.len() + usize::from(held(client, "k").await))
    }

    #[test]
    fn future_is_at_most_twice_the_plain_one() {
        let client = Client::in_memory();
        let plain = size_of_val(&plain(&client, [0; 4096]));
        let locked = size_of_val(&locked(&client, [0; 4096]));
        assert!(locked <= 2 * plain + 512, "{locked} bytes for {plain}");
    }
}
