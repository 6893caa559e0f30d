//! The scripts that the library sends, and a connection of the driver that knows them: what benches compare the library with.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script};

macro_rules! script {
    ($file:literal) => {
        include_str!(concat!(
            "../../../distlock/src/backend/redis/scripts/",
            $file
        ))
    };
}

/// Acquires a plain lock.
pub const ACQUIRE: &str = concat!(
    script!("lock_acquire.lua"),
    script!("acquire_free.lua"),
    script!("held.lua"),
    script!("acquire_held.lua")
);
/// Releases it.
pub const RELEASE: &str = concat!(
    script!("lock_release.lua"),
    script!("release.lua"),
    script!("publish.lua"),
    "return told(notified(heard))\n"
);
/// Renews holds.
pub const RENEW: &str = concat!(script!("master.lua"), script!("lock_renew.lua"));
/// Acquires several plain locks.
pub const ACQUIRE_ALL: &str = concat!(
    script!("lock_acquire_all.lua"),
    script!("acquire_all.lua"),
    script!("held.lua"),
    "return { refused + 1, held(KEYS[from + refused]) }\n"
);
/// Releases them.
pub const RELEASE_ALL: &str = concat!(
    script!("lock_release_all.lua"),
    script!("release_all.lua"),
    script!("publish.lua"),
    "for i, of_lock in ipairs(heard) do heard[i] = notified(of_lock) end\n",
    "return told(heard)\n"
);
/// Acquires a read lock.
pub const READ_ACQUIRE: &str = concat!(
    script!("owner.lua"),
    script!("rw_lock.lua"),
    script!("rw_live_reader.lua"),
    script!("rw_acquire_readers.lua"),
    script!("rw_read_acquire.lua")
);
/// Releases it.
pub const READ_RELEASE: &str = concat!(
    script!("publish.lua"),
    script!("owner.lua"),
    script!("rw_lock.lua"),
    script!("rw_live_reader.lua"),
    script!("rw_readers.lua"),
    script!("rw_release_readers.lua"),
    script!("rw_read_release.lua")
);

/// The lease of the library's client, in milliseconds.
pub const LEASE: u32 = 30_000;

/// As long as what the owners of a client begin with.
pub const STEM: &str = "0ddad9e6-60bc-45a5-8797-1987353a9077:";

/// A connection to the server of this URL, which knows these scripts.
///
/// # Panics
/// If the server cannot be reached.
pub async fn connect(url: &str, scripts: &[&str]) -> MultiplexedConnection {
    // Room in the driver's queue and a response timeout as the library has them.
    let config = AsyncConnectionConfig::new()
        .set_pipeline_buffer_size(1024)
        .set_response_timeout(Some(Duration::from_secs(2)));
    let client = redis::Client::open(format!("{url}?protocol=resp3")).expect("a URL");
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connecting.await.expect("a connection");
    for source in scripts {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(*source);
        let loaded: redis::RedisResult<String> = load.query_async(&mut connection).await;
        loaded.expect("a script");
    }
    connection
}

/// By which name a server knows this script.
#[must_use]
pub fn digest(script: &str) -> String {
    Script::new(script).get_hash().to_owned()
}

/// The channel on which the release of this key is published.
#[must_use]
pub fn channel(key: &str) -> String {
    format!("redisson_lock__channel:{{{key}}}")
}
