//! The rights that the guide lists: the tests read them there, word by word.
//!
//! A list is one line without an indent, its title, and the indented lines below it.

/// The password of every user here, as the guide writes it.
pub const PASSWORD: &str = "SECRET";

/// What every primitive needs; all that the locks need.
pub const LOCKS: &str = "locks";

/// The lists of what the client can do without.
pub const OPTIONAL: [&str; 3] = ["warning of a server that evicts locks", TRACKING, DRIVER];

/// What a server needs that tells losses at once.
pub const TRACKING: &str = "losses told at once";

/// What a user of a cluster needs beside the locks' rights.
pub const CLUSTER: &str = "Redis Cluster";

/// What replaces [`PLAIN_MESSAGES`] in a cluster whose messages are sharded.
pub const SHARDED_MESSAGES: &str = "Redis Cluster, messages";

/// What looks at locks need beside the locks' rights.
pub const LOOKS: &str = "looks at locks";

/// What replaces the right to count the listeners in such a cluster.
pub const SHARDED_LISTENERS: &str = "Redis Cluster, listeners in a report";

/// The rights for messages that are not sharded.
pub const PLAIN_MESSAGES: [&str; 4] = ["+subscribe", "+unsubscribe", "+publish", "+pubsub|numsub"];

/// The one right that some servers do not know.
const DRIVER: &str = "name of the driver in CLIENT LIST, on Valkey, and on Redis 7.2 and later";

const GUIDE: &str = include_str!("../../distlock/src/guide/least_privilege.md");
const CONNECTIONS: &str = include_str!("../../distlock/src/guide/connections.md");

/// A list of the guide.
#[derive(Clone, Debug)]
pub struct List {
    /// What it is for.
    pub title: &'static str,
    /// Commands (`+get`), patterns of keys (`~shop:*`) and of channels (`&..`).
    pub rights: Vec<&'static str>,
}

/// All lists for a user of servers, that of the [`LOCKS`] first.
///
/// # Panics
/// If the guide has none.
#[must_use]
pub fn lists() -> Vec<List> {
    let lists = lists_of(GUIDE, "shop");
    assert!(
        lists.len() > 6 && lists[0].title == LOCKS,
        "the lists of the guide: {lists:?}"
    );
    lists
}

/// The rights under a title.
///
/// # Panics
/// If the guide has no such list.
#[must_use]
pub fn of(title: &str) -> Vec<&'static str> {
    let list = lists().into_iter().find(|list| list.title == title);
    let list = list.unwrap_or_else(|| panic!("the guide has no list {title:?}"));
    list.rights
}

/// The rights of the user that asks the Sentinels.
///
/// # Panics
/// If the guide does not list them.
#[must_use]
pub fn of_sentinels() -> Vec<&'static str> {
    let lists = lists_of(CONNECTIONS, "watcher");
    let [list] = &lists[..] else {
        panic!("one list for Sentinels: {lists:?}");
    };
    list.rights.clone()
}

/// What the client can do without.
#[must_use]
pub fn optional() -> Vec<&'static str> {
    OPTIONAL.into_iter().flat_map(of).collect()
}

/// All rights of all primitives, with the optional ones, for a single server.
#[must_use]
pub fn all() -> Vec<&'static str> {
    let lists = lists().into_iter();
    let lists =
        lists.filter(|list| ![CLUSTER, SHARDED_MESSAGES, SHARDED_LISTENERS].contains(&list.title));
    lists.flat_map(|list| list.rights).collect()
}

/// The same for a cluster, whose messages are sharded or not.
#[must_use]
pub fn all_in_cluster(is_sharded: bool) -> Vec<&'static str> {
    in_cluster(all(), is_sharded)
}

/// Rights for a single server, as a user of a cluster needs them.
#[must_use]
pub fn in_cluster(rights: Vec<&'static str>, is_sharded: bool) -> Vec<&'static str> {
    let is_needed = |right: &&str| !is_sharded || !PLAIN_MESSAGES.contains(right);
    let mut rights: Vec<_> = rights.into_iter().filter(is_needed).collect();
    rights.extend(of(CLUSTER));
    if is_sharded {
        rights.extend(of(SHARDED_MESSAGES));
        rights.extend(of(SHARDED_LISTENERS));
    }
    rights
}

/// The same rights for keys with another prefix than `shop:`.
#[must_use]
pub fn for_prefix(rights: &[&str], prefix: &str) -> Vec<String> {
    let replaced = rights.iter().map(|right| right.replace("shop:", prefix));
    replaced.collect()
}

/// Whether a right is one that servers before Redis 7.2 do not know.
pub(crate) fn is_unknown_to_some(right: &str) -> bool {
    of(DRIVER).contains(&right)
}

/// The lists in the blocks of a page. The one that begins with the user's rule is the list of the locks.
fn lists_of(page: &'static str, user: &str) -> Vec<List> {
    let rule = format!("ACL SETUSER {user} ");
    let mut lists: Vec<List> = Vec::new();
    let blocks = page.split("```text\n").skip(1);
    let blocks = blocks.filter_map(|block| Some(block.split_once("```")?.0));
    for line in blocks.flat_map(str::lines) {
        let words = line.split_whitespace();
        let rights = words.filter(|word| word.starts_with(['+', '~', '&']));
        if let Some(list) = lists.last_mut().filter(|_| line.starts_with("  ")) {
            list.rights.extend(rights);
        } else if line.starts_with(&rule) {
            let (title, rights) = (LOCKS, rights.collect());
            lists.push(List { title, rights });
        } else if !line.is_empty() {
            let (title, rights) = (line, Vec::new());
            lists.push(List { title, rights });
        }
    }
    lists.retain(|list| !list.rights.is_empty());
    lists
}
