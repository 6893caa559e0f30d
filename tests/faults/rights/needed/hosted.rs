//! Row 53: the commands that hosted services block, as their lists in the guide say. A user who may run all others, or those
//! of the list alone, plays every operation of the table.

use std::collections::{BTreeMap, BTreeSet};

use distlock_tests::RedisServer;

use super::operations::{Failed, Operation};
use super::table::TABLE;
use super::{Scene, Servers, lists};
use crate::row::{Row, rows};

const GUIDE: &str = include_str!("../../../../distlock/src/guide/hosted_services.md");

/// A service, the beginning of the line above its list, and the operations that do not work there, with what is denied.
const SERVICES: [(&str, &[(&str, &str)]); 3] = [
    ("Amazon ElastiCache blocks", &[]),
    (
        "Google Cloud Memorystore for Redis blocks",
        &[
            ("name_clients", "client"),
            ("name_of_driver", "client"),
            ("hear_of_loss", "client"),
        ],
    ),
    (
        "Upstash has",
        &[
            ("name_clients", "client"),
            ("name_of_driver", "client"),
            ("hear_of_loss", "client"),
            ("warn_of_eviction", "info"),
        ],
    ),
];

/// What the client can do without.
const OPTIONAL: &[&str] = &["client", "info"];

/// The commands below a line of the guide.
fn commands(title: &str) -> Vec<&'static str> {
    let (_, after) = GUIDE
        .split_once(&format!("```text\n{title}\n"))
        .unwrap_or_else(|| panic!("the guide has no list {title:?}"));
    let (list, _) = after.split_once("```").expect("the list has an end");
    list.split_whitespace().collect()
}

/// The rights of a user of the service.
fn rights(title: &str) -> Vec<String> {
    let (base, sign) = if title.ends_with("has") {
        ("-@all", '+')
    } else {
        ("+@all", '-')
    };
    let everywhere = ["~*", "&*", base].map(str::to_owned);
    let named = commands(title).into_iter();
    let named = named.map(|command| format!("{sign}{command}"));
    everywhere.into_iter().chain(named).collect()
}

async fn f53_commands_that_hosted_services_block_leave_every_primitive_usable(row: &Row) {
    let server = RedisServer::builder().without_default_user().start().await;
    let has_driver_names = server.knows("client|setinfo").await;
    let servers = Servers::One(server);
    let mut operations: BTreeMap<&str, Operation> = BTreeMap::new();
    for list in lists(false) {
        let (_, entries) = TABLE
            .iter()
            .find(|(title, _)| *title == list.title)
            .unwrap();
        operations.extend(
            entries
                .iter()
                .map(|(_, operation)| (operation.name, *operation)),
        );
    }
    if !has_driver_names {
        operations.remove("name_of_driver");
    }
    assert!(operations.len() > 20, "{:?}", operations.keys());
    for (number, (title, failing)) in SERVICES.iter().enumerate() {
        for (name, operation) in &operations {
            let user = format!("{name}{number}");
            let expected = failing.iter().find(|(failing, _)| failing == name);
            let scene = Scene {
                servers: &servers,
                key: user.clone(),
                user,
                // An operation that is to fail does so when it is denied.
                optional: if expected.is_some() { &[] } else { OPTIONAL },
            };
            let rights = rights(title);
            let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
            servers.set_user(&scene.user, &rights).await;
            let played = operation.play(&scene).await;
            let denied = servers.denied_to(&scene.user).await;
            let denied: BTreeSet<&str> = denied.iter().map(String::as_str).collect();
            match (&played, expected) {
                (Ok(()), None) => {}
                (Err(Failed::Missing(_)), Some((_, command))) => {
                    let is_denied = denied.iter().any(|object| object.starts_with(command));
                    assert!(is_denied, "{title}: {name}: {denied:?}");
                    row.injected("command blocked", 1);
                }
                _ => panic!("{title}: {name}: {played:?}, denied {denied:?}"),
            }
            let is_optional = |object: &&str| OPTIONAL.iter().any(|one| object.starts_with(one));
            assert!(
                denied.iter().all(is_optional),
                "{title}: {name}: {denied:?}"
            );
        }
    }
}

rows! {
    Real: f53_commands_that_hosted_services_block_leave_every_primitive_usable;
}
