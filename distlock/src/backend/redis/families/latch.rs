//! The count-down latch over Redis: Redisson's `RCountDownLatch`.

use super::number;
use crate::backend::redis::script::{self, Call};
use crate::backend::redis::{RedisBackend, names, reply};
use crate::backend::{Fault, Forced, LatchChange, LatchSeen, Seen, cause};
use crate::config::MOST_RUNS_SEEN;
use crate::resource::identity::random_id;
use crate::resource::key::Key;
use crate::resource::owner::Owner;

pub(crate) async fn adjust(
    backend: &RedisBackend,
    key: &Key,
    request: Owner,
    change: LatchChange,
) -> Result<i64, Fault> {
    let (what, number) = match change {
        LatchChange::TrySet(count) => ("set", i64::from(count)),
        LatchChange::CountDown => ("down", 1),
        LatchChange::Count => return number::count(backend, key).await,
    };
    let name = key.name();
    let mark = names::mark(name, &request.text());
    let opened = names::latch_opened(name);
    let channel = names::latch_channel(name);
    let with = |call: Call| {
        let call = call.keys([&**name, &mark, &opened].into_iter());
        let call = call.arg(what).arg(number).arg(&channel);
        call.arg(reply::millis(backend.remembered))
            .arg(reply::millis(backend.opening_remembered))
            .arg(reply::millis(key.expires_after()))
    };
    let value = backend.run(key, &script::LATCH_ADJUST, &with);
    value.await.and_then(reply::number)
}

/// What a waiter sees of a latch, and in which run of the server.
pub(crate) async fn seen(backend: &RedisBackend, key: &Key) -> Result<LatchSeen, Fault> {
    let opened = names::latch_opened(key.name());
    let with = |call: Call| call.keys([&**key.name(), &opened].into_iter());
    // The run before and after the script must be the same. Only then is it the run in which the script was executed.
    let mut run = backend.servers.run_of(key).await?;
    for _ in 0..MOST_RUNS_SEEN {
        let value = backend.run(key, &script::LATCH_SEEN, &with).await?;
        let seen = reply::latch_seen(&value)?;
        let after = backend.servers.run_of(key).await?;
        if after == run {
            return Ok(LatchSeen { run, ..seen });
        }
        run = after;
    }
    Err(Fault::NotNow(cause(
        "another server has the key each time that it is asked",
    )))
}

pub(crate) async fn force_release(
    backend: &RedisBackend,
    key: &Key,
    seen: Option<&Seen>,
) -> Result<Forced, Fault> {
    let opened = names::latch_opened(key.name());
    let channel = names::latch_channel(key.name());
    // No two openings may be equal, even if different clients make them.
    let opening = random_id().simple().to_string();
    let remembered = reply::millis(backend.opening_remembered);
    let seen = seen.and_then(|seen| seen.number);
    let seen = seen.map_or_else(String::new, |number| number.to_string());
    let with = |call: Call| {
        let call = call.keys([&**key.name(), &opened].into_iter());
        let call = call.arg(&channel).arg(&opening);
        call.arg(remembered).arg(&seen)
    };
    let value = backend.run(key, &script::LATCH_DELETE, &with);
    value.await.and_then(reply::forced)
}
