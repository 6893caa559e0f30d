//! The hold of a leader: how long it lasts, and where it is reported to be made.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::sleep;

use crate::conformance::stage::Stage;

const KEY: &str = "leader:invoices";

async fn clients_longest_hold_does_not_end_a_lead(stage: &Stage) {
    let most = stage.part(3);
    let client = stage.client_with(|builder| builder.max_hold(most)).await;
    let leader = client.leader(KEY);
    let begun = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&begun);
    let run = tokio::spawn(leader.run(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        pending::<()>()
    }));
    let term = leader.elected().await;
    sleep(most * 3).await;
    assert_eq!(leader.term(), Some(term));
    assert_eq!(begun.load(Ordering::Relaxed), 1);
    leader.resign().await;
    assert!(run.await.unwrap().unwrap().is_none());
}

async fn lead_is_reported_at_the_line_that_campaigns(stage: &Stage) {
    let client = stage.client().await;
    let leader = client.leader(KEY);
    let line = line!() + 1;
    let run = leader.run(|_| async { client.snapshot().holds[0].call_site });
    let call_site = run.await.unwrap().unwrap();
    assert_eq!((call_site.file(), call_site.line()), (file!(), line));
}

on_every_backend![
    clients_longest_hold_does_not_end_a_lead,
    lead_is_reported_at_the_line_that_campaigns,
];
