//! How a test is played: on which server, in paused or in real time, and again if the machine stood still.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock::MemoryServer;
use distlock_tests::faults::Faults;
use distlock_tests::server::sentinel::SentinelSet;
use distlock_tests::{Authority, Pulse, RedisCluster, RedisServer, play_until_it_counts, rights};
use tokio::runtime;
use tokio::time::timeout;

use super::Stage;
use super::server::Server;

/// On a real server, where time is real.
const REDIS_LEASE: Duration = Duration::from_millis(2_500);

/// On a real server. See [`redis`].
const REDIS_SLACK: Duration = Duration::from_secs(4);

/// A test. With the type of its future, all that plays it would be compiled anew for each test.
pub(crate) type Body = for<'a> fn(&'a Stage) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Plays a test on the memory backend, in paused time.
pub(crate) fn memory(test: Body) {
    in_paused_time(test, None);
}

/// Plays a test on the memory backend, in paused time. Each key has its own slot, as in a cluster.
pub(crate) fn memory_in_slots(test: Body) {
    let slots = Faults::new();
    slots.split_slots();
    in_paused_time(test, Some(slots));
}

fn in_paused_time(test: Body, slots: Option<Faults>) {
    let runtime = one_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let server = Server::Memory(MemoryServer::new());
    let (lease, slack) = (Duration::from_secs(30), Duration::from_millis(5));
    let mut stage = Stage::new(server, lease, slack, true);
    stage.slots = slots;
    let a_day = Duration::from_secs(24 * 3600);
    runtime.block_on(stage.play(test, a_day));
}

/// Plays a test on the memory backend in real time, with several threads.
pub(crate) fn threads(test: Body) {
    let mut runtime = runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(4);
    let (lease, slack) = (Duration::from_millis(1_200), Duration::from_millis(150));
    let stage = async || {
        let server = Server::Memory(MemoryServer::new());
        Stage::new(server, lease, slack, false)
    };
    in_real_time(runtime, lease, stage, test);
}

/// Plays a test on its own Redis server, in real time.
///
/// The slack stretches by as much as the machine was late. The leases end sooner, so a lost message hides in it: what a message
/// does is tested in `waiting::by_message`. A hold that nobody ends hides in it as well, unless it is one of a
/// [`lasting_client`](Stage::lasting_client). What is exact is asserted on paused time.
pub(crate) fn redis(test: Body) {
    let stage = async || {
        let server = RedisServer::builder().without_default_user().start().await;
        server.set_user("shop", &rights::all()).await;
        let mut stage = Stage::on(Server::Redis(Box::new(server)));
        (stage.user, stage.prefix) = (Some("shop".to_owned()), "shop:".to_owned());
        stage
    };
    in_real_time(&mut one_thread(), REDIS_LEASE, stage, test);
}

/// Plays a test on its own Redis server, whose clients use TLS.
pub(crate) fn tls(test: Body) {
    let stage = async || {
        let authority = Authority::new();
        let builder = RedisServer::builder().tls(&authority.server());
        let mut stage = Stage::on(Server::Redis(Box::new(builder.start().await)));
        stage.authority = Some(authority);
        stage
    };
    in_real_time(&mut one_thread(), REDIS_LEASE, stage, test);
}

/// Plays a test on the master of a set of servers with Sentinels, which other tests use at the same time.
pub(crate) fn sentinel(test: Body) {
    static STAGES: AtomicU64 = AtomicU64::new(0);
    let stage = async || {
        let user = format!("behind{}", STAGES.fetch_add(1, Ordering::Relaxed));
        let prefix = format!("{user}:");
        let set = SentinelSet::shared().await;
        let rights = rights::for_prefix(&rights::all(), &prefix);
        set.server(set.master().await)
            .set_user(&user, &rights)
            .await;
        let rights = [rights::of_sentinels(), rights::optional()].concat();
        for at in 0..3 {
            set.sentinel(at).set_user(&user, &rights).await;
        }
        let mut stage = Stage::on(Server::Sentinel(set));
        (stage.user, stage.prefix) = (Some(user), prefix);
        stage
    };
    in_real_time(&mut one_thread(), REDIS_LEASE, stage, test);
}

/// Plays a test on a Redis Cluster, in real time. The keys of a test are spread over the nodes.
pub(crate) fn cluster(test: Body) {
    on_cluster(test, |user| format!("{user}:"));
}

/// Plays a test on a Redis Cluster, in real time. The keys of a test are in one slot.
pub(crate) fn cluster_in_one_slot(test: Body) {
    on_cluster(test, |user| format!("{user}:{{{user}}}:"));
}

fn on_cluster(test: Body, prefix: impl Fn(&str) -> String) {
    static STAGES: AtomicU64 = AtomicU64::new(0);
    let stage = async || {
        let user = format!("spread{}", STAGES.fetch_add(1, Ordering::Relaxed));
        let cluster = RedisCluster::shared().await;
        let rights = rights::all_in_cluster(cluster.has_sharded_messages().await);
        let rights = rights::for_prefix(&rights, &format!("{user}:"));
        cluster.set_user(&user, &rights).await;
        let mut stage = Stage::on(Server::Cluster(cluster));
        (stage.prefix, stage.user) = (prefix(&user), Some(user));
        stage
    };
    in_real_time(&mut one_thread(), REDIS_LEASE, stage, test);
}

fn one_thread() -> runtime::Builder {
    runtime::Builder::new_current_thread()
}

/// Plays a test in real time. The clients of a stage with this lease wait for an answer for a sixth of it, and the shortest waits of
/// tests are a fiftieth. So a machine that was late by a fiftieth is too late.
fn in_real_time(
    builder: &mut runtime::Builder,
    lease: Duration,
    stage: impl AsyncFn() -> Stage,
    test: Body,
) {
    let prepare = || {
        let runtime = builder.enable_all().build().unwrap();
        let stage = runtime.block_on(stage());
        (runtime, stage)
    };
    play_until_it_counts(
        lease / 50,
        prepare,
        |(runtime, stage)| runtime.block_on(stage.play(test, Duration::from_secs(120))),
        |(_, stage)| stage.late(),
    );
}

impl Stage {
    /// On a real server.
    pub(super) fn on(server: Server) -> Self {
        Self::new(server, REDIS_LEASE, REDIS_SLACK, false)
    }

    pub(super) async fn play(&self, test: Body, patience: Duration) {
        if !self.paused {
            let _first = self.pulse.set(Pulse::start());
        }
        let played = timeout(patience, test(self)).await;
        played.expect("the test hangs");
        self.faults.clear_all();
        self.is_quiet_within(self.lease * 3).await;
        let denied = self.denied().await;
        assert!(denied.is_empty(), "denied, but needed: {denied:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    async fn a_stage() -> Stage {
        Stage::on(Server::Memory(MemoryServer::new()))
    }

    #[test]
    fn failure_on_a_machine_that_stands_still_does_not_count() {
        static PLAYS: AtomicU64 = AtomicU64::new(0);
        async fn test(stage: &Stage) {
            // The pulse sleeps.
            tokio::task::yield_now().await;
            if PLAYS.fetch_add(1, Ordering::Relaxed) == 0 {
                thread::sleep(stage.lease());
                panic!("an answer that came too late");
            }
        }
        let test: Body = |stage| Box::pin(test(stage));
        in_real_time(&mut one_thread(), REDIS_LEASE, a_stage, test);
        assert_eq!(PLAYS.load(Ordering::Relaxed), 2);
    }

    #[test]
    #[should_panic = "a failure of the library"]
    fn failure_that_comes_again_and_again_counts_on_any_machine() {
        let test: Body = |_| Box::pin(async { panic!("a failure of the library") });
        in_real_time(&mut one_thread(), REDIS_LEASE, a_stage, test);
    }
}
