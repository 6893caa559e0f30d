//! The commands that the library sends, and nothing else.

use distlock_bench::bare::{
    self, ACQUIRE, ACQUIRE_ALL, LEASE, RELEASE, RELEASE_ALL, RENEW, STEM, digest,
};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

const SCRIPTS: [&str; 5] = [ACQUIRE, RELEASE, ACQUIRE_ALL, RELEASE_ALL, RENEW];

/// A connection of the driver, and the digests of the scripts.
#[derive(Clone)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
    acquire_all: String,
    release_all: String,
    renew: String,
}

impl Bare {
    pub(crate) async fn connect(url: &str) -> Self {
        let connection = bare::connect(url, &SCRIPTS).await;
        Self {
            connection,
            acquire: digest(ACQUIRE),
            release: digest(RELEASE),
            acquire_all: digest(ACQUIRE_ALL),
            release_all: digest(RELEASE_ALL),
            renew: digest(RENEW),
        }
    }

    /// Acquires and releases.
    pub(crate) async fn pair(&mut self, name: &Name) {
        let mut acquire = evalsha(&self.acquire, &[&name.key]);
        acquire.arg(&name.owner).arg(LEASE);
        let acquired: Value = acquire.query_async(&mut self.connection).await.unwrap();
        assert_eq!(acquired, Value::Nil);
        let mut release = evalsha(&self.release, &[&name.key]);
        release.arg(&name.owner).arg(&name.channel);
        let released: Value = release.query_async(&mut self.connection).await.unwrap();
        assert_eq!(released, Value::Int(0));
    }

    /// Acquires all of them, and releases all of them.
    pub(crate) async fn pair_of_all(&mut self, names: &[Name]) {
        let keys: Vec<&str> = names.iter().map(|name| &*name.key).collect();
        let mut acquire = evalsha(&self.acquire_all, &keys);
        for name in names {
            acquire.arg(&name.owner).arg(LEASE);
        }
        let acquired: Value = acquire.query_async(&mut self.connection).await.unwrap();
        assert_eq!(acquired, Value::Nil);
        let mut release = evalsha(&self.release_all, &keys);
        for name in names {
            release.arg(&name.owner).arg(&name.channel);
        }
        let released: Value = release.query_async(&mut self.connection).await.unwrap();
        assert_eq!(released, Value::Array(vec![Value::Int(0); names.len()]));
    }

    /// Acquires, for leases that no case outlives.
    pub(crate) async fn acquire(&mut self, name: &Name) {
        let mut acquire = evalsha(&self.acquire, &[&name.key]);
        acquire.arg(&name.owner).arg(10 * LEASE);
        let acquired: Value = acquire.query_async(&mut self.connection).await.unwrap();
        assert_eq!(acquired, Value::Nil);
    }

    /// Renews these holds, by one pipeline of scripts that renew `batch` holds each.
    pub(crate) async fn renew(&mut self, names: &[Name], batch: usize) {
        let mut pipeline = redis::pipe();
        for (nth, names) in names.chunks(batch).enumerate() {
            let keys: Vec<&str> = names.iter().map(|name| &*name.key).collect();
            let mut renew = evalsha(&self.renew, &keys);
            renew.arg(STEM).arg(LEASE);
            for number in 0..names.len() {
                renew.arg(nth * batch + number);
            }
            pipeline.add_command(renew);
        }
        let answers: Vec<Vec<usize>> = pipeline.query_async(&mut self.connection).await.unwrap();
        let renewed = answers.iter().map(|answer| match answer[..] {
            [renewed] => renewed,
            _ => panic!("holds are lost: {answer:?}"),
        });
        assert_eq!(renewed.sum::<usize>(), names.len());
    }

    /// What the server was asked to renew until now, by this connection and all others.
    pub(crate) async fn renewed(&mut self) -> Renewed {
        let mut info = redis::cmd("INFO");
        info.arg("commandstats");
        let stats: String = info.query_async(&mut self.connection).await.unwrap();
        let calls = |command: &str| {
            let mut lines = stats.lines();
            let line = lines.find_map(|line| line.strip_prefix(command)).unwrap();
            line.split(',').next().unwrap().parse().unwrap()
        };
        Renewed {
            holds: calls("cmdstat_pexpire:calls="),
            scripts: calls("cmdstat_evalsha:calls="),
        }
    }
}

/// How many holds were renewed, and how many scripts were run. Both are only compared with earlier numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Renewed {
    holds: usize,
    scripts: usize,
}

impl Renewed {
    /// The numbers after some more.
    pub(crate) fn after(self, holds: usize, scripts: usize) -> Self {
        Self {
            holds: self.holds + holds,
            scripts: self.scripts + scripts,
        }
    }
}

fn evalsha(digest: &str, keys: &[&str]) -> Cmd {
    let mut evalsha = redis::cmd("EVALSHA");
    evalsha.arg(digest).arg(keys.len());
    for key in keys {
        evalsha.arg(key);
    }
    evalsha
}

/// A key, its owner and its channel. They are as long as the library's own.
#[derive(Clone)]
pub(crate) struct Name {
    key: String,
    owner: String,
    channel: String,
}

impl Name {
    pub(crate) fn new(number: usize) -> Self {
        let key = format!("bare:{number}");
        Self {
            owner: format!("{STEM}{number}"),
            channel: bare::channel(&key),
            key,
        }
    }
}
