//! What lives under a key, whichever primitive that is, and which clients the server knows by name.

use redis::Value;
use uuid::Uuid;

use super::reply::{self, bytes};
use super::script::{self, Call, Publish};
use super::{RedisBackend, names};
use crate::backend::reports::{HolderReport, KeyReport, WaiterReport, client_id};
use crate::backend::{Examined, Fault, Listed, Listeners, NamedClient, ValueSeen, cause};
use crate::resource::key::Key;
use crate::resource::kind::Kind;

/// The rights to the commands of the script that locks do not need. Before version 7.2 the server does not say which of them
/// the user lacks.
const NEEDED: &str = "+time +type +getrange +hscan +llen +lrange +zscore +zcount +zrangebyscore";

/// The commands that count listeners, and the right to each.
pub(super) fn listener_counts(publish: Publish) -> &'static [(&'static str, &'static str)] {
    const BOTH: &[(&str, &str)] = &[
        ("NUMSUB", "+pubsub|numsub"),
        ("SHARDNUMSUB", "+pubsub|shardnumsub"),
    ];
    match publish {
        Publish::Plain => &BOTH[..1],
        Publish::Sharded => &BOTH[1..],
        Publish::Both => BOTH,
    }
}

/// Counts the connections that listen to a lock's channel. One that listens both ways counts once.
pub(super) async fn listeners(backend: &RedisBackend, key: &Key) -> Result<u64, Fault> {
    // Before `publishes` is read below: until the cluster is known, it says `Plain`.
    backend.servers.are_known().await?;
    let channel = names::lock_channel(key.name());
    let mut most = 0;
    for (count, _) in listener_counts(backend.servers.publishes()) {
        let mut ask = redis::cmd("PUBSUB");
        ask.arg(count).arg(&channel);
        let answer = backend.servers.route(key).send(ask).await?;
        let [_, Value::Int(listeners)] = reply::parts(&answer) else {
            return Err(reply::unexpected(&answer));
        };
        most = most.max(u64::try_from(*listeners).unwrap_or(0));
    }
    Ok(most)
}

pub(super) async fn examine(backend: &RedisBackend, key: &Key) -> Result<KeyReport, Fault> {
    // Before `publishes` is read below: until the cluster is known, it says `Plain`.
    backend.servers.are_known().await?;
    let name = key.name();
    let beside = [
        names::fair_queue(name),
        names::fair_timeouts(name),
        names::fair_ours(name),
        names::fence(name),
        names::permits(name),
        names::semaphore_owners(name),
    ];
    let channels = [
        names::lock_channel(name),
        names::rw_channel(name),
        names::semaphore_channel(name),
        names::latch_channel(name),
    ];
    let counts = listener_counts(backend.servers.publishes());
    let (count, right) = counts[0];
    let more = counts.get(1).map_or("", |(more, _)| *more);
    // Only names in the slot of the key can belong to its lock, and one command cannot name several slots.
    let is_whole = backend.servers.refuses(Kind::Fair, name).is_none();
    let with = |call: Call| {
        let beside = beside
            .iter()
            .map(|other| if is_whole { other.as_str() } else { name });
        let keys: Vec<&str> = std::iter::once(&**name).chain(beside).collect();
        let call = call.keys(keys.into_iter());
        let call = call.arg(KeyReport::MAX_LISTED).arg(names::rw_stem(name));
        let call = channels
            .iter()
            .fold(call, |call, channel| call.arg(channel));
        call.arg(count).arg(more)
    };
    let value = backend.run(key, &script::EXAMINE, &with).await;
    let value = value.map_err(|fault| needs(NEEDED, fault))?;
    let mut examined = read(&value, right).ok_or_else(|| reply::unexpected(&value))?;
    if !is_whole {
        examined.token = None;
        examined.permit_owners = Listed::default();
    }
    Ok(examined.into_report(key))
}

/// The reply of the script.
fn read(value: &Value, right: &'static str) -> Option<Examined> {
    let [
        kind,
        Value::Int(left),
        text,
        Value::Array(fields),
        Value::Array(queue),
        Value::Array(permits),
        Value::Array(owners),
        Value::Array(ended),
        token,
        listeners,
    ] = reply::parts(value)
    else {
        return None;
    };
    Some(Examined {
        value: value_of(bytes(kind)?, text, fields)?,
        ttl: reply::ttl(*left),
        queue: listed(queue, 2, |pair| match pair {
            [owner, Value::Int(left)] => Some(WaiterReport::new(bytes(owner)?, reply::ttl(*left)?)),
            _ => None,
        })?,
        permits: listed(permits, 2, |pair| match pair {
            [id, Value::Int(left)] => {
                let id = reply::permit_name(bytes(id)?);
                Some(HolderReport::new(&id, 1, reply::ttl(*left)))
            }
            _ => None,
        })?,
        ended_permits: match ended.as_slice() {
            [ended] => count(ended)?,
            _ => return None,
        },
        permit_owners: owners_of_permits(owners)?,
        token: match token {
            Value::Nil => None,
            token => number(bytes(token)?).and_then(|token| u64::try_from(token).ok()),
        },
        listeners: match listeners {
            Value::Nil => Err(right),
            Value::Array(counts) => Ok(listening(counts)?),
            _ => return None,
        },
    })
}

/// The value under the key, of the type that `kind` names.
fn value_of(kind: &[u8], text: &Value, fields: &[Value]) -> Option<ValueSeen> {
    Some(match kind {
        b"none" => ValueSeen::Nothing,
        b"string" => match bytes(text)? {
            text if text.len() > LONGEST_NUMBER => ValueSeen::Other,
            text => number(text).map_or(ValueSeen::Other, ValueSeen::Number),
        },
        b"hash" => owners_of_lock(fields)?,
        _ => ValueSeen::Other,
    })
}

fn owners_of_permits(owners: &[Value]) -> Option<Listed<HolderReport>> {
    listed(owners, 2, |pair| match pair {
        // Another program may have written something that is not a number.
        [owner, permits] => {
            let permits = number(bytes(permits)?).unwrap_or_default();
            let permits = u64::try_from(permits).unwrap_or(0);
            Some(HolderReport::new(bytes(owner)?, permits, None))
        }
        _ => None,
    })
}

fn count(value: &Value) -> Option<u64> {
    match value {
        Value::Int(count) => u64::try_from(*count).ok(),
        _ => None,
    }
}

fn listening(counts: &[Value]) -> Option<Listeners> {
    let [lock, read_write, semaphore, latch] = counts else {
        return None;
    };
    Some(Listeners {
        lock: count(lock)?,
        read_write: count(read_write)?,
        semaphore: count(semaphore)?,
        latch: count(latch)?,
    })
}

/// A list whose first value is the number of all items.
fn listed<'a, T>(
    values: &'a [Value],
    each: usize,
    item: impl Fn(&'a [Value]) -> Option<T>,
) -> Option<Listed<T>> {
    let (total, values) = values.split_first()?;
    let items = values.chunks(each).map(item);
    Some(Listed {
        items: items.collect::<Option<_>>()?,
        total: count(total)?,
    })
}

/// A hash, if it is a lock: all of its fields are owners with counts, but for the mode of a read/write lock.
fn owners_of_lock(fields: &[Value]) -> Option<ValueSeen> {
    let mut is_written = None;
    let mut is_lock = true;
    let fields = listed(fields, 3, |field| match field {
        [owner, count, Value::Int(left)] => Some((bytes(owner)?, bytes(count)?, *left)),
        _ => None,
    })?;
    let mut holders = Vec::new();
    let mut total = fields.total;
    for (owner, count, left) in fields.items {
        match (owner, count) {
            (b"mode", b"read") => is_written = Some(false),
            (b"mode", b"write") => is_written = Some(true),
            _ => match number(count).and_then(|count| u64::try_from(count).ok()) {
                Some(count) if client_id(owner).is_some() => {
                    holders.push(HolderReport::new(owner, count, reply::ttl(left)));
                }
                _ => is_lock = false,
            },
        }
    }
    if is_written.is_some() {
        let before = holders.len();
        // A reader whose timeouts have ended holds nothing any more.
        let is_alive = |holder: &HolderReport| {
            is_writer(&holder.owner) || holder.lease_left.is_some_and(|left| !left.is_zero())
        };
        holders.retain(is_alive);
        // The mode is one of the fields, and no holder.
        total = total.saturating_sub((before - holders.len()) as u64 + 1);
    }
    let holders = Listed {
        items: holders,
        total,
    };
    Some(match is_written {
        _ if !is_lock => ValueSeen::Other,
        Some(is_written) => ValueSeen::ReadWrite {
            is_written,
            holders,
        },
        None => ValueSeen::Lock(holders),
    })
}

/// Whether an owner is a writer. Those of Redisson's transactions have their id behind it.
fn is_writer(owner: &str) -> bool {
    owner.split(':').skip(2).any(|word| word == "write")
}

/// The longest number of a semaphore or a latch, as in `scripts/number.lua`.
const LONGEST_NUMBER: usize = 15;

/// A number as Redis and Redisson write it.
fn number(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: i64 = text.parse().ok()?;
    // `+1` and `007` are no numbers of Redis.
    (itoa::Buffer::new().format(number) == text).then_some(number)
}

pub(super) async fn named_clients(
    backend: &RedisBackend,
    key: &Key,
) -> Result<Vec<NamedClient>, Fault> {
    let mut list = redis::cmd("CLIENT");
    list.arg("LIST");
    let listed = backend.servers.route(key).send(list).await;
    match listed.map_err(|fault| needs("+client|list", fault))? {
        Value::BulkString(bytes) => Ok(clients(&String::from_utf8_lossy(&bytes))),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(clients(&text)),
        other => Err(reply::unexpected(&other)),
    }
}

/// The clients of a list whose names contain an id.
fn clients(list: &str) -> Vec<NamedClient> {
    let client = |line: &str| {
        let field = |wanted: &str| {
            let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
            Some(fields.find(|(name, _)| *name == wanted)?.1)
        };
        let full = field("name")?;
        let id = id_in(full)?;
        let ours = full.strip_suffix(&format!(":{id}"));
        Some(NamedClient {
            id,
            name: ours.unwrap_or(full).to_owned(),
            address: field("addr")?.to_owned(),
        })
    };
    list.lines().filter_map(client).collect()
}

/// The last id in a name.
fn id_in(name: &str) -> Option<Uuid> {
    let length = uuid::fmt::Hyphenated::LENGTH;
    let starts = (0..=name.len().checked_sub(length)?).rev();
    let mut texts = starts.filter_map(|at| name.get(at..at + length));
    texts.find_map(|text| Uuid::try_parse(text).ok())
}

/// Names the rights of which one is missing. Not every server does.
pub(super) fn needs(rights: &str, fault: Fault) -> Fault {
    match fault {
        Fault::Denied(key, denied) => Fault::Denied(
            key,
            cause(format!(
                "a look at locks needs `{rights}` and the patterns of keys in the guide's page `least_privilege` ({denied})"
            )),
        ),
        fault => fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_found_by_the_ids_in_their_names() {
        let ours = Uuid::from_u128(7);
        let java = Uuid::from_u128(9);
        let list = format!(
            "id=3 addr=10.0.0.1:4242 laddr=10.0.0.9:6379 fd=8 name=orders-7f9c:{ours} age=5\r\n\
             id=4 addr=10.0.0.2:1 name=billing-{java}-main age=5\n\
             id=5 addr=10.0.0.3:1 name= age=1\n\
             id=6 addr=10.0.0.4:1 name=redis-cli age=1\n\
             broken line\n"
        );
        let client = |id, name: &str, address: &str| NamedClient {
            id,
            name: name.to_owned(),
            address: address.to_owned(),
        };
        let expected = [
            client(ours, "orders-7f9c", "10.0.0.1:4242"),
            client(java, &format!("billing-{java}-main"), "10.0.0.2:1"),
        ];
        assert_eq!(clients(&list), expected);
    }

    #[test]
    fn needed_rights_are_those_of_the_guide() {
        let guide = include_str!("../../guide/least_privilege.md");
        let (_, list) = guide.split_once("looks at locks\n").unwrap();
        assert!(list.lines().any(|line| line.trim() == NEEDED));
    }

    #[test]
    fn only_what_redis_counts_with_is_a_number() {
        for (text, expected) in [("0", Some(0)), ("-7", Some(-7)), ("12", Some(12))] {
            assert_eq!(number(text.as_bytes()), expected);
        }
        for text in ["", "+1", "007", "1.0", "1e3", " 1", "99999999999999999999"] {
            assert_eq!(number(text.as_bytes()), None, "{text:?}");
        }
    }
}
