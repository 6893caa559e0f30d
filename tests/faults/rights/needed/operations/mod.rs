//! What a user does that may lack a right. Each operation fails where the right is missing that it is listed with.

mod locks;
mod messages;
mod numbers;

use std::fmt;
use std::pin::Pin;

use distlock::{Client, Error};
use distlock_tests::server::ClientLine;
use tokio::time::{Instant, sleep};

use self::locks::{
    acquire, acquire_held, acquire_in_moving_slot, acquire_with_scripts_forgotten, fair_acquire,
    fair_come_back, fair_release, fair_wait, fenced_acquire, force_release, holders, inspect,
    name_clients, read_acquire, readers_leave, release, scan, write_acquire,
};
use self::messages::{
    count_listeners, hear_of_loss, listen, listen_in_silence, name_of_driver, stop_listening, tell,
    tell_of_expirable_permits, tell_of_latch, tell_of_permits, tell_of_readers, warn_of_eviction,
};
use self::numbers::{
    acquire_expirable_permit, acquire_permit, count_expirable_permits, set_expirable_permits,
    set_permits,
};
use super::Scene;
use crate::support::{SOON, ms};

type Played<'a> = Pin<Box<dyn Future<Output = Result<(), Failed>> + 'a>>;

/// An operation and its name.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    pub(super) name: &'static str,
    play: for<'a> fn(&'a Scene<'a>) -> Played<'a>,
}

impl Operation {
    pub(super) async fn play(&self, scene: &Scene<'_>) -> Result<(), Failed> {
        (self.play)(scene).await
    }
}

/// Why an operation failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// It returned an error.
    Error(Error),
    /// What it promises has not happened when the server denied a command.
    Missing(&'static str),
}

impl Failed {
    /// Whether the caller learns that a right is missing, if there is an error at all.
    pub(super) fn is_told_as_denial(&self) -> bool {
        match self {
            Self::Error(error) => {
                matches!(error, Error::Denied { .. } | Error::LoginDenied { .. })
            }
            Self::Missing(_) => true,
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::Missing(what) => write!(f, "not so: {what}"),
        }
    }
}

/// A constant for each of these functions.
macro_rules! operations {
    ($($name:ident = $function:ident;)*) => {
        $(pub(super) const $name: Operation = Operation {
            name: stringify!($function),
            play: |scene| Box::pin($function(scene)),
        };)*
    };
}

operations! {
    ACQUIRE = acquire;
    ACQUIRE_WITH_SCRIPTS_FORGOTTEN = acquire_with_scripts_forgotten;
    ACQUIRE_IN_MOVING_SLOT = acquire_in_moving_slot;
    ACQUIRE_HELD = acquire_held;
    RELEASE = release;
    HOLDERS = holders;
    FORCE_RELEASE = force_release;
    LISTEN = listen;
    LISTEN_IN_SILENCE = listen_in_silence;
    STOP_LISTENING = stop_listening;
    WARN_OF_EVICTION = warn_of_eviction;
    NAME_OF_DRIVER = name_of_driver;
    HEAR_OF_LOSS = hear_of_loss;
    INSPECT = inspect;
    SCAN = scan;
    NAME_CLIENTS = name_clients;
    COUNT_LISTENERS = count_listeners;
    FENCED_ACQUIRE = fenced_acquire;
    FAIR_ACQUIRE = fair_acquire;
    FAIR_RELEASE = fair_release;
    FAIR_WAIT = fair_wait;
    FAIR_COME_BACK = fair_come_back;
    READ_ACQUIRE = read_acquire;
    WRITE_ACQUIRE = write_acquire;
    READERS_LEAVE = readers_leave;
    SET_PERMITS = set_permits;
    ACQUIRE_PERMIT = acquire_permit;
    TELL = tell;
    TELL_OF_READERS = tell_of_readers;
    TELL_OF_PERMITS = tell_of_permits;
    TELL_OF_EXPIRABLE_PERMITS = tell_of_expirable_permits;
    TELL_OF_LATCH = tell_of_latch;
    SET_EXPIRABLE_PERMITS = set_expirable_permits;
    ACQUIRE_EXPIRABLE_PERMIT = acquire_expirable_permit;
    COUNT_EXPIRABLE_PERMITS = count_expirable_permits;
}

impl Scene<'_> {
    pub(super) async fn client(&self) -> Result<Client, Error> {
        let builder = Client::builder().key_prefix("shop:");
        let builder = builder.credentials(&self.user, distlock_tests::rights::PASSWORD);
        builder.connect(&self.servers.url()).await
    }

    /// The name of the lock's channel.
    pub(super) fn channel(&self) -> String {
        if self.key.contains('{') {
            format!("redisson_lock__channel:shop:{}", self.key)
        } else {
            format!("redisson_lock__channel:{{shop:{}}}", self.key)
        }
    }

    /// Waits for a fact. Fails if the fact does not hold when the servers have denied the user something.
    pub(super) async fn until(
        &self,
        what: &'static str,
        mut fact: impl AsyncFnMut() -> bool,
    ) -> Result<(), Failed> {
        let deadline = Instant::now() + 2 * SOON;
        loop {
            let denied = self.denied().await;
            if fact().await {
                return Ok(());
            }
            if !denied.is_empty() {
                return Err(Failed::Missing(what));
            }
            assert!(Instant::now() < deadline, "{}: {what}", self.user);
            sleep(ms(10)).await;
        }
    }

    /// How many subscribers the channel of the lock has.
    pub(super) async fn subscribers(&self) -> u64 {
        let (channel, mut all) = (self.channel(), 0);
        for node in self.servers.nodes() {
            for question in ["NUMSUB", "SHARDNUMSUB"] {
                let words = ["PUBSUB", question, &channel];
                // Servers before version 7 do not know the second.
                let answer: redis::RedisResult<(String, u64)> = node.try_cli(&words).await;
                all += answer.map_or(0, |(_, subscribers)| subscribers);
            }
        }
        all
    }

    /// The connections of the user.
    pub(super) async fn connections(&self) -> Vec<ClientLine> {
        let mut all = Vec::new();
        for node in self.servers.nodes() {
            all.extend(node.client_list().await);
        }
        all.retain(|line| line.field("user") == self.user);
        all
    }
}
