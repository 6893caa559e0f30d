//! A client as a whole.

use std::time::Duration;

use distlock::{Client, Credentials};
use distlock_tests::LockKind;

use super::Row;
use crate::calls;
use crate::play::{Backend, SOON};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::from(connects());
    rows.extend(looks());
    rows.extend(test_server());
    rows.push(Row::new(
        &["Client::close"],
        LockKind::Reentrant,
        |play| async move {
            let guard = play.held().await;
            let dropped = play.client().lock(format!("{}dropped", play.key));
            drop(dropped.acquire().await.unwrap());
            let client = play.client().clone();
            async move {
                drop(guard);
                drop(client.close(SOON).await);
            }
        },
    ));
    rows
}

fn connects() -> [Row; 2] {
    let url = |play: &crate::play::Play| play.url.clone().unwrap();
    [
        Row::new(
            &["Client::connect"],
            LockKind::Reentrant,
            move |play| async move {
                let url = url(&play);
                async move { drop(Client::connect(&url).await) }
            },
        )
        .only(Backend::Redis),
        Row::new(
            &["Builder::connect"],
            LockKind::Reentrant,
            move |play| async move {
                let url = url(&play);
                let builder = Client::builder()
                    .credentials_from(async || {
                        calls::call("a source of credentials");
                        Ok::<_, std::io::Error>(Credentials::new("default", ""))
                    })
                    .map_address(|host, port| {
                        calls::call("a map of addresses");
                        Some((host.to_owned(), port))
                    });
                async move { drop(builder.connect(&url).await) }
            },
        )
        .only(Backend::Redis),
    ]
}

fn looks() -> [Row; 5] {
    [
        Row::new(
            &["Client::inspect"],
            LockKind::Reentrant,
            |play| async move {
                let (client, key) = (play.client().clone(), play.key.clone());
                async move { drop(client.inspect(key).await) }
            },
        ),
        Row::new(
            &["Client::force_release"],
            LockKind::Reentrant,
            |play| async move {
                let held = play.other().lock(&play.key).acquire().await.unwrap();
                let client = play.client().clone();
                let seen = client.inspect(&play.key).await.unwrap();
                async move {
                    drop(client.force_release(&seen).await);
                    drop(held);
                }
            },
        ),
        Row::new(&["Client::ping"], LockKind::Reentrant, |play| async move {
            let client = play.client().clone();
            async move { drop(client.ping().await) }
        }),
        Row::new(
            &["Client::server_facts"],
            LockKind::Reentrant,
            |play| async move {
                let client = play.client().clone();
                async move { drop(client.server_facts().await) }
            },
        ),
        Row::new(
            &["Scan::next_page"],
            LockKind::Reentrant,
            |play| async move {
                let held = play.other().lock(&play.key).acquire().await.unwrap();
                let mut scan = play.client().scan(format!("{}*", play.key));
                async move {
                    while let Ok(Some(_)) = scan.next_page().await {}
                    drop(held);
                }
            },
        ),
    ]
}

/// What a server in the process tells its tests.
fn test_server() -> [Row; 3] {
    const HELD_FOR: Duration = Duration::from_millis(10);
    [
        Row::new(
            &["MemoryServer::until_free"],
            LockKind::Reentrant,
            |play| async move {
                let (server, key) = (play.servers[0].clone(), play.key.clone());
                let guard = play.held().await;
                tokio::spawn(async move {
                    tokio::time::sleep(HELD_FOR).await;
                    drop(guard);
                });
                async move { server.until_free(&key).await }
            },
        )
        .only(Backend::Memory),
        Row::new(
            &["MemoryServer::until_locked"],
            LockKind::Reentrant,
            |play| async move {
                let (server, key) = (play.servers[0].clone(), play.key.clone());
                play.rivals(HELD_FOR);
                async move { drop(tokio::time::timeout(SOON, server.until_locked(&key)).await) }
            },
        )
        .only(Backend::Memory),
        Row::new(
            &["MemoryServer::until_waiting"],
            LockKind::Reentrant,
            |play| async move {
                let (server, key) = (play.servers[0].clone(), play.key.clone());
                let guard = play.held().await;
                play.rivals(HELD_FOR);
                async move {
                    drop(tokio::time::timeout(SOON, server.until_waiting(&key, 1)).await);
                    drop(guard);
                }
            },
        )
        .only(Backend::Memory),
    ]
}
