//! A candidate for a key, and holds that outlive their guard.

use std::time::Duration;

use distlock_tests::LockKind;
use futures_util::StreamExt as _;
use tokio::time::timeout;

use super::{Row, body};

/// After which a hold that stays detached ends by its lease, and for how long a candidate is watched.
const SHORT: Duration = Duration::from_secs(1);

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::from(detached());
    macro_rules! of {
        ($leader:ident => $($items:expr, $does:expr;)*) => {$(
            rows.push(Row::new($items, LockKind::Fenced, |play| async move {
                let $leader = play.client().leader(&play.key);
                async move { drop($does) }
            }));
        )*};
    }
    of! { leader =>
        &["Leader::run"], leader.run(|_| body()).await;
        &["Leader::who"], leader.who().await;
        &["Leader::elected"],
            tokio::join!(leader.run(|_| body()), timeout(SHORT, leader.elected()));
        &["Leader::resign"],
            tokio::join!(leader.run(|_| body()), timeout(SHORT, leader.resign()));
        &["Leader::changes", "LeaderChanges"],
            tokio::join!(leader.run(|_| body()), timeout(SHORT, leader.changes().take(1).count()));
    }
    rows
}

/// A hold that is dropped before it was attached stays detached, until its lease ends.
fn detached() -> [Row; 2] {
    macro_rules! of {
        ($client:ident, $held:ident => $item:literal, $does:expr) => {
            Row::new(&[$item], LockKind::Reentrant, |play| async move {
                let acquire = play.client().lock(&play.key).acquire();
                let $held = acquire.lease(SHORT).await.unwrap().detach().unwrap();
                let $client = play.client().clone();
                async move { drop($does.await) }
            })
        };
    }
    [
        of!(client, held => "Client::attach", client.attach(&held)),
        of!(client, held => "Client::release_detached", client.release_detached(&held)),
    ]
}
