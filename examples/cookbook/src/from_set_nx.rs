//! From locks made of `SET NX` to those of this crate, while both are in use.
//!
//! | library | its key for the lock `order:42` | its value |
//! | --- | --- | --- |
//! | redis-py: `client.lock("order:42")` | `order:42` | a random text |
//! | redlock (node, Python, Rust's rslock) with **one** server: `lock(["order:42"], ..)` | `order:42` | a random text |
//!
//! A Redlock of several servers is locked if a majority of them has its key. [`with_both`] takes the old lock on one server, and so
//! does not exclude it: such a program has to take the old lock by its redlock library, in place of `OldLock`.
//!
//! Such a key is a string, and a lock of this crate is a hash, as Redisson's is. The two cannot share a key: each of them finds a
//! value of another type. So they have two prefixes, and take two releases to change:
//!
//! 1. A release that takes **both** locks, by [`with_both`]. It excludes the replicas that still have only the old one, and those
//!    of the next release. Deploy it everywhere.
//! 2. A release that takes only the new lock. From then on nobody has the old one alone.
//!
//! All of them take the new lock first and the old one last, so that no two of them wait for each other. The old lock keeps its
//! fixed time, and its work has to be shorter than that. If it was not, [`Done::released`] says so beside the value, as redis-py
//! raises `LockNotOwnedError`.

use std::time::Duration;

use distlock::Client;
use redis::aio::ConnectionManager;
use redis::{RedisError, Script};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::Failure;

/// The prefix of the locks of this crate: give it to `Client::builder().key_prefix(..)`. No old key begins with it.
pub const NEW_PREFIX: &str = "locks:";

/// How long the old lock is taken at most.
const OLD_TTL: Duration = Duration::from_secs(30);

/// How long to wait for both, in all.
const WAIT: Duration = Duration::from_secs(5);

/// What redis-py and redlock send to release a lock.
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('DEL', KEYS[1])";

/// What was done under both locks.
#[derive(Debug)]
pub struct Done<T> {
    /// What the work has returned.
    pub value: T,
    /// An error if one of the locks had ended before the work had, so that somebody else may have worked at the same time, or if
    /// a release was not answered.
    pub released: Result<(), Failure>,
}

/// Takes the new lock and then the old one, and runs `work` under both. `old` connects again after an outage, which a
/// `MultiplexedConnection` does not.
///
/// # Errors
/// Those of the locks, and if the old one stays taken for too long. The work was not done then, except if the new lock is lost
/// while it runs.
pub async fn with_both<T>(
    locks: &Client,
    old: &ConnectionManager,
    key: &str,
    work: impl Future<Output = T>,
) -> Result<Done<T>, Failure> {
    let until = Instant::now() + WAIT;
    let new = locks.lock(key).acquire().wait(WAIT).await?;
    let mut old = OldLock::new(old, key);
    let both = async {
        old.take(until).await?;
        Ok::<_, Failure>(work.await)
    };
    let value = new.scope(both).await?;
    // The work is done: its value is returned, whatever becomes of the locks.
    let released_old = old.release().await;
    let released_new = new.release().await;
    Ok(Done {
        value: value?,
        released: released_old.and(released_new.map_err(Failure::from)),
    })
}

/// The old lock of a key. It is released when it is dropped, as when the caller of [`with_both`] goes away or the new lock is lost.
struct OldLock {
    connection: ConnectionManager,
    key: String,
    /// A text that nobody else writes.
    token: String,
    is_released: bool,
}

impl OldLock {
    fn new(connection: &ConnectionManager, key: &str) -> Self {
        Self {
            connection: connection.clone(),
            key: key.to_owned(),
            token: format!("{:032x}", rand::random::<u128>()),
            is_released: false,
        }
    }

    /// Takes the lock, as the old release does.
    async fn take(&mut self, until: Instant) -> Result<(), Failure> {
        loop {
            let mut set = redis::cmd("SET");
            set.arg(&self.key)
                .arg(&self.token)
                .arg("NX")
                .arg("PX")
                .arg(OLD_TTL.as_millis() as u64);
            let taken: Option<String> = set.query_async(&mut self.connection).await?;
            if taken.is_some() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(format!("the old lock of {} is taken", self.key).into());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Releases the lock, as the old release does.
    async fn release(mut self) -> Result<(), Failure> {
        let (key, token) = (self.key.clone(), self.token.clone());
        let was_held = release_old(self.connection.clone(), key, token).await?;
        self.is_released = true;
        if !was_held {
            return Err(
                format!("the old lock of {} had ended before the work had", self.key).into(),
            );
        }
        Ok(())
    }
}

impl Drop for OldLock {
    fn drop(&mut self) {
        // Outside of a runtime nothing can be sent, and the lock ends with its time.
        if let (false, Ok(runtime)) = (self.is_released, Handle::try_current()) {
            let (key, token) = (self.key.clone(), self.token.clone());
            runtime.spawn(release_old(self.connection.clone(), key, token));
        }
    }
}

async fn release_old(
    mut connection: ConnectionManager,
    key: String,
    token: String,
) -> Result<bool, RedisError> {
    let script = Script::new(RELEASE);
    script
        .key(key)
        .arg(token)
        .invoke_async(&mut connection)
        .await
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]
mod tests {
    use std::future::pending;
    use std::net::TcpListener;
    use std::process::{Child, Command, Stdio};

    use distlock::Error;
    use redis::aio::{ConnectionManagerConfig, MultiplexedConnection};

    use super::*;

    /// Longer than anything here takes on a busy machine, and shorter than an old lock stays taken.
    const SOON: Duration = Duration::from_secs(20);

    /// A server of the test's own.
    struct Server(Child, u16);

    impl Server {
        async fn start() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            drop(listener);
            let server = Command::new("redis-server")
                .args([
                    "--port",
                    &port.to_string(),
                    "--save",
                    "",
                    "--bind",
                    "127.0.0.1",
                ])
                .stdout(Stdio::null())
                .spawn()
                .expect("redis-server is installed");
            let server = Self(server, port);
            let until = Instant::now() + Duration::from_secs(30);
            while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
                assert!(Instant::now() < until, "redis-server does not listen");
                sleep(Duration::from_millis(10)).await;
            }
            server
        }

        fn url(&self) -> String {
            format!("redis://127.0.0.1:{}", self.1)
        }

        async fn old_release(&self) -> MultiplexedConnection {
            let client = redis::Client::open(self.url()).unwrap();
            client.get_multiplexed_async_connection().await.unwrap()
        }

        async fn own(&self) -> ConnectionManager {
            let client = redis::Client::open(self.url()).unwrap();
            let config = ConnectionManagerConfig::new().set_response_timeout(Some(SOON));
            let connecting = client.get_connection_manager_with_config(config);
            connecting.await.unwrap()
        }

        async fn new_locks(&self) -> Client {
            let builder = Client::builder()
                .key_prefix(NEW_PREFIX)
                .unavailable_after(Duration::from_secs(1));
            builder.connect(&self.url()).await.unwrap()
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ended = self.0.kill();
            let _ended = self.0.wait();
        }
    }

    /// What redis-py sends, with a time that ends nothing here.
    async fn takes_old(old: &mut MultiplexedConnection, key: &str) -> bool {
        let mut set = redis::cmd("SET");
        set.arg(key).arg("redis-py").arg("NX").arg("PX").arg(60_000);
        set.query_async::<Option<String>>(old)
            .await
            .unwrap()
            .is_some()
    }

    #[tokio::test]
    async fn release_with_both_locks_excludes_the_old_release_and_the_next_one() {
        let server = Server::start().await;
        let (mut old, own) = (server.old_release().await, server.own().await);
        let (locks, next) = (server.new_locks().await, server.new_locks().await);
        let inside = async {
            assert!(
                !takes_old(&mut old, "order:42").await,
                "the old release is inside"
            );
            let busy = next.lock("order:42").try_acquire().await.unwrap();
            assert!(busy.is_none(), "the next release is inside");
        };
        let done = with_both(&locks, &own, "order:42", inside).await;
        done.unwrap().released.unwrap();
        // Both are free again, and the old release keeps the one with both out.
        assert!(takes_old(&mut old, "order:42").await);
        let refused = with_both(&locks, &own, "order:42", async {}).await;
        assert!(refused.unwrap_err().to_string().contains("old lock"));
        // It has given the new lock back.
        next.lock("order:42")
            .try_acquire()
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn old_lock_that_ends_before_the_work_is_told_beside_the_value() {
        let server = Server::start().await;
        let (mut other, own) = (server.old_release().await, server.own().await);
        let locks = server.new_locks().await;
        let work = async {
            // As if its time were over.
            let mut delete = redis::cmd("DEL");
            delete
                .arg("order:42")
                .query_async::<()>(&mut other)
                .await
                .unwrap();
            assert!(takes_old(&mut other, "order:42").await);
            "paid"
        };
        let done = with_both(&locks, &own, "order:42", work).await.unwrap();
        assert_eq!(done.value, "paid");
        let told = done.released.unwrap_err().to_string();
        assert!(told.contains("had ended before the work"), "{told}");
        assert!(
            !takes_old(&mut other, "order:42").await,
            "the lock of another was released"
        );
    }

    #[tokio::test]
    async fn value_of_the_work_is_returned_if_the_locks_cannot_be_released() {
        let server = Server::start().await;
        let own = server.own().await;
        let locks = server.new_locks().await;
        let work = async {
            drop(server);
            "paid"
        };
        let done = with_both(&locks, &own, "order:42", work).await.unwrap();
        assert_eq!(done.value, "paid");
        done.released.unwrap_err();
    }

    #[tokio::test]
    async fn value_of_the_work_is_returned_if_the_new_lock_is_lost_while_the_old_one_is_released() {
        let (server, old_server) = (Server::start().await, Server::start().await);
        let (own, mut admin) = (old_server.own().await, old_server.old_release().await);
        let builder = Client::builder().watchdog_timeout(Duration::from_secs(3));
        let locks = builder.connect(&server.url()).await.unwrap();
        let work = async {
            let mut pause = redis::cmd("CLIENT");
            pause.arg("PAUSE").arg(3_000);
            pause.query_async::<()>(&mut admin).await.unwrap();
            // Found by a renewal, once a second.
            assert!(locks.lock("order:42").force_release().await.unwrap());
            "paid"
        };
        let done = with_both(&locks, &own, "order:42", work).await.unwrap();
        assert_eq!(done.value, "paid");
        done.released.unwrap_err();
    }

    #[tokio::test]
    async fn both_locks_can_be_taken_again_after_the_connections_have_ended() {
        let server = Server::start().await;
        let (mut admin, own) = (server.old_release().await, server.own().await);
        let locks = server.new_locks().await;
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal");
        let killed: u64 = kill.query_async(&mut admin).await.unwrap();
        assert!(killed > 0);
        let until = Instant::now() + SOON;
        while let Err(error) = with_both(&locks, &own, "order:42", async {}).await {
            assert!(Instant::now() < until, "{error}");
        }
    }

    #[tokio::test]
    async fn old_lock_of_a_call_that_is_dropped_is_released() {
        let server = Server::start().await;
        let (mut old, own) = (server.old_release().await, server.own().await);
        let locks = server.new_locks().await;
        let (inside, mut is_inside) = tokio::sync::mpsc::channel(1);
        let work = async {
            inside.send(()).await.unwrap();
            pending::<()>().await;
        };
        tokio::select! {
            done = with_both(&locks, &own, "order:42", work) => panic!("{done:?}"),
            _ = is_inside.recv() => {} // the caller goes away
        }
        let until = Instant::now() + SOON;
        while !takes_old(&mut old, "order:42").await {
            assert!(Instant::now() < until, "the old lock stays taken");
            sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn lock_of_this_crate_under_the_key_of_an_old_one_is_refused_and_leaves_it_alone() {
        let server = Server::start().await;
        let mut old = server.old_release().await;
        assert!(takes_old(&mut old, "order:42").await);
        let same_prefix = Client::connect(&server.url()).await.unwrap();
        let refused = same_prefix.lock("order:42").try_acquire().await;
        assert!(
            matches!(refused, Err(Error::WrongType { .. })),
            "{refused:?}"
        );
        let value: String = redis::cmd("GET")
            .arg("order:42")
            .query_async(&mut old)
            .await
            .unwrap();
        assert_eq!(value, "redis-py");
    }
}
