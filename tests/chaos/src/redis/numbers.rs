//! A14: a client's number of a connection is that of the connection in use.

use std::sync::Arc;
use std::time::Duration;

use distlock::Client;
use distlock::test_util::connections;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The time between two looks. A wrong number stays until the connection is replaced.
const EVERY: Duration = Duration::from_millis(20);

/// Looks at the connections of the clients in this process, again and again.
pub(super) struct Numbers(JoinHandle<String>);

impl Numbers {
    pub(super) fn watch(client_sets: &[Arc<[Client]>]) -> Self {
        let client_sets = client_sets.to_vec();
        Self(tokio::spawn(async move {
            loop {
                let clients = client_sets.iter().flat_map(|program| program.iter());
                if let Some(wrong) = clients.filter_map(wrong_number).next() {
                    return wrong;
                }
                sleep(EVERY).await;
            }
        }))
    }

    /// The first wrong number that was seen, if there was one.
    pub(super) async fn wrong(self) -> Option<String> {
        if !self.0.is_finished() {
            self.0.abort();
        }
        self.0.await.ok()
    }
}

/// A connection that is used under another number than its own, if there is one.
fn wrong_number(client: &Client) -> Option<String> {
    let mut all = connections(client).into_iter();
    let wrong = all.find(|seen| seen.in_use.is_some_and(|in_use| in_use != seen.epoch))?;
    Some(format!("{wrong:?}"))
}
