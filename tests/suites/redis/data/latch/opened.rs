//! A latch that is gone when its waiter looks: whether it was opened is told by a mark, by messages, or by the run of the
//! server.

use std::time::Duration;

use distlock::{Client, Error};
use distlock_tests::rights::{self, PASSWORD};
use distlock_tests::{Flow, Proxy, Pulse, RedisServer, Select, Way, eventually};
use tokio::task::JoinHandle;

use crate::redis::data::semaphore::listened;
use crate::redis::{SOON, client};

const KEY: &str = "shop:jobs";
const CHANNEL: &str = "redisson_countdownlatch__channel__{shop:jobs}";

/// What Redisson sends to count a latch down.
const COUNT_DOWN: &str = "local v = redis.call('decr', KEYS[1]);\
    if v <= 0 then redis.call('del', KEYS[1]) end;\
    if v == 0 then redis.call('publish', KEYS[2], ARGV[1]) end;";

/// How a latch comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    CountedByUs,
    DeletedByUs,
    CountedByJava,
    DeletedByHand,
}

/// A server, and a client that has seen a latch at 1 and listens, with a proxy between them.
struct Scene {
    server: RedisServer,
    proxy: Proxy,
    /// Of a client on another connection.
    latch: distlock::CountDownLatch,
    waiting: JoinHandle<Result<(), Error>>,
}

impl Scene {
    async fn new() -> Self {
        let server = RedisServer::start().await;
        let proxy = Proxy::start(server.addr()).await;
        let waiter = Client::connect(&proxy.url()).await.unwrap();
        Self::of(server, proxy, &waiter).await
    }

    /// With a waiter that lacks one right.
    async fn without(right: &str) -> Self {
        let server = RedisServer::start().await;
        let proxy = Proxy::start(server.addr()).await;
        let rights: Vec<_> = rights::all()
            .into_iter()
            .filter(|one| *one != right && !one.contains("setinfo"))
            .collect();
        server.set_user("waiter", &rights).await;
        let builder = Client::builder().credentials("waiter", PASSWORD);
        let waiter = builder.connect(&proxy.url()).await.unwrap();
        Self::of(server, proxy, &waiter).await
    }

    async fn of(server: RedisServer, proxy: Proxy, waiter: &Client) -> Self {
        let latch = client(&server).await.count_down_latch(KEY);
        Self::with(server, proxy, waiter, latch).await
    }

    async fn with(
        server: RedisServer,
        proxy: Proxy,
        waiter: &Client,
        latch: distlock::CountDownLatch,
    ) -> Self {
        assert!(latch.try_set_count(1).await.unwrap());
        let asked = server.command_calls("get").await;
        let waiting = tokio::spawn(waiter.count_down_latch(KEY).wait().into_future());
        listened(&server, CHANNEL, 1).await;
        // Each look asks for the count and for the mark. It looks again once it listens.
        eventually(SOON, "two looks", || async {
            server.command_calls("get").await >= asked + 4
        })
        .await;
        Self {
            server,
            proxy,
            latch,
            waiting,
        }
    }

    /// Both connections are lost, and there are no new ones until [`restore`](Scene::restore).
    fn lose_connections(&self) {
        let _until_healed = self.proxy.refuse();
        let cut = self.proxy.cut(Select::EXISTING);
        assert!(cut >= 2, "{cut} connections cut");
    }

    /// What the waiter returns after the latch has ended while there were no connections.
    async fn told_of_what_it_missed(self, end: End) -> Result<(), Error> {
        self.lose_connections();
        self.ends(end).await;
        self.restore();
        self.told().await
    }

    fn restore(&self) {
        self.proxy.heal();
    }

    async fn ends(&self, end: End) {
        match end {
            End::CountedByUs => assert_eq!(self.latch.count_down().await.unwrap(), 0),
            End::DeletedByUs => assert!(self.latch.delete().await.unwrap()),
            End::CountedByJava => {
                let count = ["EVAL", COUNT_DOWN, "2", KEY, CHANNEL, "0"];
                self.server.cli(&count).await;
            }
            End::DeletedByHand => {
                self.server.cli(&["DEL", KEY]).await;
            }
        }
        let left: Option<String> = self.server.try_cli(&["GET", KEY]).await.unwrap();
        assert_eq!(left, None);
    }

    /// What the waiter returns, which looks by itself every 5 s and then waits for messages for 2 s.
    async fn told(self) -> Result<(), Error> {
        self.told_within(SOON).await
    }

    async fn told_within(self, bound: Duration) -> Result<(), Error> {
        let told = Pulse::start().timeout(bound, self.waiting).await;
        told.expect("told").unwrap()
    }
}

#[tokio::test]
async fn latch_that_opens_while_the_connections_are_lost_lets_its_waiters_go() {
    for end in [End::CountedByUs, End::DeletedByUs, End::CountedByJava] {
        let scene = Scene::new().await;
        let told = scene.told_of_what_it_missed(end).await;
        assert!(told.is_ok(), "{end:?}: {told:?}");
    }
}

/// The mark tells it.
#[tokio::test]
async fn latch_that_we_open_lets_a_waiter_go_who_may_not_ask_for_the_run_of_the_server() {
    for end in [End::CountedByUs, End::DeletedByUs] {
        let scene = Scene::without("+info").await;
        let told = scene.told_of_what_it_missed(end).await;
        assert!(told.is_ok(), "{end:?}: {told:?}");
    }
}

#[tokio::test]
async fn latch_that_java_opens_unheard_is_lost_to_who_may_not_ask_for_the_run_and_the_error_says_so()
 {
    let scene = Scene::without("+info").await;
    let told = scene.told_of_what_it_missed(End::CountedByJava).await;
    let error = told.unwrap_err();
    assert!(
        error.is_lost() && error.to_string().contains("`+info`"),
        "{error}"
    );
}

/// The connection for commands is the one of before, and so is the server.
#[tokio::test]
async fn latch_that_opens_while_messages_stall_lets_its_waiters_go() {
    for end in [End::CountedByUs, End::CountedByJava] {
        let scene = match end {
            End::CountedByUs => Scene::new().await,
            _ => Scene::without("+info").await,
        };
        let stall = scene
            .proxy
            .flow(Select::SUBSCRIBERS, Way::Both, Flow::Stall);
        scene.ends(end).await;
        let told = scene.told().await;
        assert!(told.is_ok(), "{end:?}: {told:?}");
        assert!(stall.hits() > 0);
    }
}

/// The same as a latch that Redisson opens, but that its time was over.
#[tokio::test]
async fn latch_that_expires_while_messages_stall_is_lost() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let waiter = Client::connect(&proxy.url()).await.unwrap();
    let latch = client(&server).await.count_down_latch(KEY);
    let latch = latch.expire_after(Duration::from_secs(10));
    let scene = Scene::with(server, proxy, &waiter, latch).await;
    let stall = scene
        .proxy
        .flow(Select::SUBSCRIBERS, Way::Both, Flow::Stall);
    // It may end just after a look.
    let error = scene.told_within(3 * SOON).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(stall.hits() > 0);
}

#[tokio::test]
async fn latch_that_is_deleted_by_hand_while_messages_arrive_is_lost() {
    let scene = Scene::new().await;
    scene.ends(End::DeletedByHand).await;
    let error = scene.told().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(!error.to_string().contains("+info"), "{error}");
}

/// The mark is that of the latch before, which Redisson's setting does not remove.
#[tokio::test]
async fn opening_of_an_earlier_latch_is_not_that_of_the_next_one() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let earlier = client(&server).await.count_down_latch(KEY);
    assert!(earlier.try_set_count(1).await.unwrap());
    assert_eq!(earlier.count_down().await.unwrap(), 0);
    server.cli(&["SET", KEY, "1"]).await;
    let asked = server.command_calls("get").await;
    let waiter = Client::connect(&proxy.url()).await.unwrap();
    let waiting = tokio::spawn(waiter.count_down_latch(KEY).wait().into_future());
    eventually(SOON, "two looks", || async {
        server.command_calls("get").await >= asked + 4
    })
    .await;
    server.cli(&["DEL", KEY]).await;
    let told = Pulse::start().timeout(SOON, waiting).await;
    let error = told.expect("told").unwrap().unwrap_err();
    assert!(error.is_lost(), "{error}");
}

/// A server that has lost its data is another run.
#[tokio::test]
async fn latch_that_is_gone_after_a_restart_is_lost() {
    let mut scene = Scene::new().await;
    scene.server.restart().await;
    let error = scene.told().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(!error.to_string().contains("+info"), "{error}");
}

/// And only for waiters of latches.
#[tokio::test]
async fn run_of_the_server_is_asked_for_once_over_a_connection() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let before = server.command_calls("info").await;
    for n in 0..10 {
        let latch = client.count_down_latch(format!("jobs:{n}"));
        latch.try_set_count(1).await.unwrap();
        let (opened, left) = tokio::join!(latch.wait(), latch.count_down());
        opened.unwrap();
        assert_eq!(left.unwrap(), 0);
    }
    // The question of this test before is one as well.
    assert_eq!(server.command_calls("info").await - before, 2);
}
