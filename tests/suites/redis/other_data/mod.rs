//! Keys that hold data of other programs: no operation of any primitive changes a byte of them, or takes long to refuse
//! them.

mod beside;
mod bounds;
mod owners;
mod values;

use std::collections::BTreeMap;

use distlock::test_util::{Answer, Kind, LatchChange, PermitChange, SemaphoreChange, Verbs};
use distlock::{Client, Error};
use distlock_tests::RedisServer;
use uuid::Uuid;

use super::ms;

/// An owner as Redisson writes it.
const JAVA: &str = "0ddad9e6-60bc-45a5-8797-1987353a9077:1";
const LEASE: std::time::Duration = ms(30_000);

/// Every kind.
const KINDS: [Kind; 11] = [
    Kind::Reentrant,
    Kind::NonReentrant,
    Kind::Spin,
    Kind::Fenced,
    Kind::Fair,
    Kind::NonReentrantFair,
    Kind::Read,
    Kind::Write,
    Kind::Semaphore,
    Kind::ExpirableSemaphore,
    Kind::CountDownLatch,
];

fn is_read_write(kind: Kind) -> bool {
    matches!(kind, Kind::Read | Kind::Write)
}

/// Whether the kind keeps a number under its key.
fn has_number(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Semaphore | Kind::ExpirableSemaphore | Kind::CountDownLatch
    )
}

/// What an operation answered.
type Answered = Result<Answer, Error>;

/// All operations of a kind on `k`, with their answers. The owners are 1 and 2.
async fn operations(client: &Client, kind: Kind) -> Vec<(&'static str, Answered)> {
    let verbs = Verbs::new(client, Uuid::from_u128(7)).of_kind(kind);
    let mut answers = Vec::new();
    if kind != Kind::CountDownLatch {
        answers.extend([
            ("acquire", verbs.attempt("k", 1, LEASE).await),
            (
                "acquire, waiting",
                verbs.waiting(ms(5_000)).attempt("k", 1, LEASE).await,
            ),
            (
                "acquire, nested",
                verbs.inside(2).attempt("k", 1, LEASE).await,
            ),
            ("release", verbs.release("k", 1).await),
            ("withdraw", verbs.withdraw("k", 1).await),
        ]);
    }
    if !matches!(kind, Kind::CountDownLatch | Kind::Semaphore) {
        answers.push(("renew", verbs.renew(&[("k", 1, 2, LEASE)]).await));
    }
    if matches!(kind, Kind::Reentrant | Kind::NonReentrant | Kind::Spin) {
        answers.extend([
            ("acquire all", verbs.attempt_all(&[("k", 1, LEASE)]).await),
            ("release all", verbs.release_all(&[("k", 1)]).await),
        ]);
    }
    answers.extend([
        ("inspect", verbs.inspect("k").await),
        ("force release", verbs.force_release("k").await),
    ]);
    answers.extend(adjustments(&verbs, kind).await);
    answers
}

/// The changes of a number.
async fn adjustments(verbs: &Verbs, kind: Kind) -> Vec<(&'static str, Answered)> {
    match kind {
        Kind::Semaphore => vec![
            ("count", verbs.adjust("k", 3, SemaphoreChange::Count).await),
            (
                "set",
                verbs.adjust("k", 4, SemaphoreChange::TrySet(5)).await,
            ),
            ("add", verbs.adjust("k", 5, SemaphoreChange::Add(1)).await),
            ("drain", verbs.adjust("k", 6, SemaphoreChange::Drain).await),
        ],
        Kind::CountDownLatch => vec![
            ("count", verbs.adjust("k", 3, LatchChange::Count).await),
            ("set", verbs.adjust("k", 4, LatchChange::TrySet(5)).await),
            ("down", verbs.adjust("k", 5, LatchChange::CountDown).await),
        ],
        Kind::ExpirableSemaphore => {
            let id = verbs.permit_ids(1)[0];
            vec![
                ("count", verbs.adjust("k", 3, PermitChange::Count).await),
                (
                    "taken",
                    verbs.adjust("k", 3, PermitChange::AcquiredPermits).await,
                ),
                (
                    "total",
                    verbs.adjust("k", 3, PermitChange::TotalPermits).await,
                ),
                (
                    "try set",
                    verbs.adjust("k", 4, PermitChange::TrySet(5)).await,
                ),
                (
                    "set",
                    verbs.adjust("k", 5, PermitChange::SetPermits(5)).await,
                ),
                ("add", verbs.adjust("k", 6, PermitChange::Add(1)).await),
                (
                    "release one",
                    verbs.adjust("k", 7, PermitChange::ReleasePermit(id)).await,
                ),
                (
                    "remaining lease",
                    verbs.adjust("k", 8, PermitChange::RemainingLease(id)).await,
                ),
                (
                    "update",
                    verbs
                        .adjust("k", 8, PermitChange::UpdateLease(id, LEASE))
                        .await,
                ),
            ]
        }
        _ => Vec::new(),
    }
}

/// All keys, each with its value and the end of its life in ms since 1970, -1 without one. Hashes and sets are put in order: a look
/// at a large one may go on with the growth of its table, and then it is serialised in another order.
async fn snapshot(server: &RedisServer) -> BTreeMap<String, (String, i64)> {
    let script = "local time, all = redis.call('TIME'), {}
        local now = time[1] * 1000 + math.floor(time[2] / 1000)
        for i, key in ipairs(redis.call('KEYS', '*')) do
          local left = redis.pcall('PEXPIRETIME', key)
          if type(left) == 'table' then
            left = redis.call('PTTL', key)
            if left >= 0 then left = left + now end
          end
          local kind, value = redis.call('TYPE', key).ok
          if kind == 'hash' then
            local fields, pairs = redis.call('HGETALL', key), {}
            for at = 1, #fields, 2 do pairs[#pairs + 1] = cmsgpack.pack({ fields[at], fields[at + 1] }) end
            table.sort(pairs)
            value = cmsgpack.pack(pairs)
          elseif kind == 'set' then
            value = redis.call('SMEMBERS', key)
            table.sort(value)
            value = cmsgpack.pack(value)
          else
            value = redis.call('DUMP', key)
          end
          all[i] = { key, redis.sha1hex(value), left }
        end
        return all";
    let keys: Vec<(String, String, i64)> = server.try_cli(&["EVAL", script, "0"]).await.unwrap();
    keys.into_iter()
        .map(|(key, value, end)| (key, (value, end)))
        .collect()
}

/// Asserts that nothing has changed. Before Redis 7 no command tells the end of a life, and the two times from which it is
/// computed are read one after the other.
#[track_caller]
fn assert_same(
    before: &BTreeMap<String, (String, i64)>,
    after: &BTreeMap<String, (String, i64)>,
    what: &str,
) {
    let same = before.len() == after.len()
        && before.iter().zip(after).all(|(one, other)| {
            let ((key, (value, end)), (other_key, (other_value, other_end))) = (one, other);
            key == other_key && value == other_value && (end - other_end).abs() <= 2
        });
    assert!(same, "{what}: {before:?} became {after:?}");
}
