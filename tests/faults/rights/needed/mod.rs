//! Row 53: of the rights that the guide lists none is surplus. Each is taken away once, and an operation fails that the
//! list promises. That the rights suffice is what the conformance tests show, whose users have them and no others.

pub(super) mod hosted;
mod operations;
pub(super) mod sentinel;
mod table;

use std::collections::BTreeSet;

use distlock_tests::rights::{self, List};
use distlock_tests::{RedisCluster, RedisServer};

use crate::row::{Row, rows};
use operations::Operation;
use table::TABLE;

/// Where the users are.
pub(super) enum Servers {
    One(RedisServer),
    Cluster(RedisCluster),
}

impl Servers {
    /// URL of their administrator. The client's own user replaces it.
    fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    fn nodes(&self) -> Vec<&RedisServer> {
        match self {
            Self::One(server) => vec![server],
            Self::Cluster(cluster) => (0..cluster.size()).map(|at| cluster.node(at)).collect(),
        }
    }

    async fn each(&self, words: &[&str]) {
        for node in self.nodes() {
            node.cli(words).await;
        }
    }

    /// Runs a command where a key is.
    async fn at_owner(&self, key: &str, words: &[&str]) {
        match self {
            Self::One(server) => server.cli(words).await,
            Self::Cluster(cluster) => {
                let slot = cluster.slot_of(key).await;
                cluster.node(cluster.node_of(slot).await).cli(words).await
            }
        };
    }

    async fn set_user(&self, user: &str, rights: &[&str]) {
        for node in self.nodes() {
            node.set_user(user, rights).await;
        }
    }

    async fn denied_to(&self, user: &str) -> BTreeSet<String> {
        let mut denied = BTreeSet::new();
        for node in self.nodes() {
            denied.append(&mut node.denied_to(user).await);
        }
        denied
    }

    /// Whether they have the command of a right. Only one right is not known to all servers.
    async fn know(&self, right: &str) -> bool {
        let command = right.trim_start_matches('+');
        command != "client|setinfo" || self.nodes()[0].knows(command).await
    }
}

/// Servers, a user of them that may lack a right, and a key that nobody else uses.
pub(super) struct Scene<'a> {
    servers: &'a Servers,
    user: String,
    key: String,
    /// What begins like these may be denied: the client can do without.
    optional: &'static [&'static str],
}

impl Scene<'_> {
    /// What the user was denied that it needs.
    async fn denied(&self) -> BTreeSet<String> {
        let mut denied = self.servers.denied_to(&self.user).await;
        denied.retain(|object| {
            !self
                .optional
                .iter()
                .any(|begins| object.starts_with(begins))
        });
        denied
    }
}

/// An operation that needs a right of a list, among the rights of that list and those that it is added to.
#[derive(Clone)]
struct Case {
    title: &'static str,
    right: &'static str,
    operation: Operation,
    rights: Vec<&'static str>,
}

/// All rights of these lists. Fails if one has no operation in the table.
fn cases(lists: &[List], base: &[&'static str]) -> Vec<Case> {
    let mut cases = Vec::new();
    for List { title, rights: own } in lists {
        let entries = TABLE.iter().find(|(listed, _)| listed == title);
        let (_, entries) = entries.unwrap_or_else(|| panic!("no operation needs {title:?}"));
        let listed: BTreeSet<&str> = own.iter().copied().collect();
        let in_table: BTreeSet<&str> = entries.iter().map(|(right, _)| *right).collect();
        assert_eq!(listed, in_table, "{title}: the guide, and the table");
        for (right, operation) in *entries {
            cases.push(Case {
                title,
                right,
                operation: *operation,
                rights: [base, own].concat(),
            });
        }
    }
    cases
}

/// Plays the operation of each case by a user that has the rights, and by one that has the others.
async fn play(row: &Row, servers: &Servers, cases: &[Case]) {
    let mut surplus = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let Case {
            title,
            right,
            operation,
            rights,
        } = case;
        if !servers.know(right).await {
            println!("{title}: {right} is not known to this server");
            continue;
        }
        let scene = |name: &str| {
            let user = format!("{name}{number}");
            // A pattern for keys with a hash tag is needed by these alone, and all others by keys without.
            let key = if right.ends_with(":shop:*") {
                format!("{{{user}}}:tag")
            } else {
                user.clone()
            };
            Scene {
                servers,
                user,
                key,
                optional: &[],
            }
        };
        let shop = scene("shop");
        servers.set_user(&shop.user, rights).await;
        let played = operation.play(&shop).await;
        let denied = servers.denied_to(&shop.user).await;
        assert!(
            played.is_ok() && denied.is_empty(),
            "{title}: {} with all rights: {played:?}, denied {denied:?}",
            operation.name
        );
        let lacking = scene("lacking");
        let others = rights.iter().copied().filter(|one| one != right);
        let others: Vec<&str> = others.collect();
        servers.set_user(&lacking.user, &others).await;
        let played = operation.play(&lacking).await;
        let denied = servers.denied_to(&lacking.user).await;
        match played {
            Err(failed) if !denied.is_empty() => {
                assert!(
                    failed.is_told_as_denial(),
                    "{title}: without {right} {}: {failed:?}",
                    operation.name
                );
                println!("{title}: without {right} {}: {failed}", operation.name);
                row.injected("right taken away", 1);
            }
            played => surplus.push(format!(
                "{title}: {right}: {} {played:?}, denied {denied:?}",
                operation.name
            )),
        }
    }
    assert!(surplus.is_empty(), "granted for nothing: {surplus:#?}");
}

/// The lists of the guide that are for every server, or those that are for a cluster alone.
fn lists(is_of_cluster: bool) -> Vec<List> {
    let lists = rights::lists().into_iter();
    let of_cluster = [
        rights::CLUSTER,
        rights::SHARDED_MESSAGES,
        rights::SHARDED_LISTENERS,
    ];
    let lists = lists.filter(|list| of_cluster.contains(&list.title) == is_of_cluster);
    lists.collect()
}

/// The cases of every server: the lists are added to that of the locks, and the optional ones to all.
fn cases_of_every_server() -> Vec<Case> {
    let [locks, optional] = [rights::of(rights::LOCKS), rights::optional()];
    let base = [locks, optional].concat();
    cases(&lists(false), &base)
}

async fn f53_guides_rights_suffice_for_each_primitive_and_each_is_needed(row: &Row) {
    let server = RedisServer::builder().without_default_user().start().await;
    play(row, &Servers::One(server), &cases_of_every_server()).await;
}

async fn f53_each_right_of_a_clusters_user_is_needed(row: &Row) {
    let builder = RedisCluster::builder().replicas(false);
    let cluster = builder.without_default_user().start().await;
    let is_sharded = cluster.has_sharded_messages().await;
    let of_cluster = lists(true)
        .into_iter()
        .filter(|list| is_sharded || list.title == rights::CLUSTER);
    let of_cluster: Vec<List> = of_cluster.collect();
    if !is_sharded {
        println!("this server has no sharded messages, so no right for them is taken away");
    }
    // Listeners are counted by looks at locks.
    let base = [
        cases_of_every_server()[0].rights.clone(),
        rights::of(rights::LOOKS),
    ]
    .concat();
    let mut cases = [cases(&of_cluster, &base), cases_of_every_server()].concat();
    cases.retain(|case| !is_sharded || !rights::PLAIN_MESSAGES.contains(&case.right));
    for case in &mut cases {
        case.rights = rights::in_cluster(case.rights.clone(), is_sharded);
    }
    play(row, &Servers::Cluster(cluster), &cases).await;
}

rows! {
    Real: f53_guides_rights_suffice_for_each_primitive_and_each_is_needed;
    Real, left to "engines": f53_each_right_of_a_clusters_user_is_needed;
}
