//! A task whose waker panics waits for a branch of its scope, or for a leader: the others are woken all the same.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use distlock::Client;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(12);

/// More than the wakers that tokio collects before it wakes them.
const CROWD: usize = 70;

/// Counts its wake-ups, and panics at each if it is told to.
struct Counts(AtomicUsize, bool);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        if self.1 {
            resume_unwind(Box::new("the waker"));
        }
    }
}

/// The first one panics.
fn wakers() -> Vec<Arc<Counts>> {
    let counts = |n| Arc::new(Counts(AtomicUsize::new(0), n == 0));
    (0..CROWD).map(counts).collect()
}

#[tokio::test(start_paused = true)]
async fn branches_behind_one_whose_waker_panics_enter_the_scope() {
    let client = Client::in_memory();
    let lock = client.rw_lock("scope");
    let wakers = wakers();
    let body = async {
        let inside = lock.write().acquire().await.unwrap();
        let mut readers = Vec::new();
        for counts in &wakers {
            let mut reader = lock.read().acquire().into_future();
            let waker = Waker::from(Arc::clone(counts));
            assert!(
                reader
                    .poll_unpin(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            readers.push(reader);
        }
        let _panic = catch_unwind(AssertUnwindSafe(|| drop(inside)));
        let woken = wakers.iter().map(|counts| counts.0.load(Ordering::SeqCst));
        assert_eq!(woken.collect::<Vec<_>>(), [1; CROWD]);
        for reader in readers {
            let reader = timeout(SOON, reader).await.expect("it still waits");
            reader.unwrap().release().await.unwrap();
        }
        let writer = lock.write().acquire().wait(SOON).await.unwrap();
        writer.release().await.unwrap();
    };
    lock.write().acquire().run(body).await.unwrap();
}

/// Has the stream wait in a task whose waker panics.
fn wait<S: Stream + Unpin>(stream: &mut S) {
    let waker = Waker::from(Arc::new(Counts(AtomicUsize::new(0), true)));
    let mut context = Context::from_waker(&waker);
    while Pin::new(&mut *stream).poll_next(&mut context).is_ready() {}
}

#[tokio::test(start_paused = true)]
async fn leader_leads_and_resigns_although_the_wakers_of_those_who_watch_it_panic() {
    let client = Client::in_memory();
    let leader = client.leader("leader");
    let (mut changes, mut elected) = (leader.changes(), leader.elected().into_stream().boxed());
    wait(&mut changes);
    wait(&mut elected);
    let run = tokio::spawn(leader.run(|_| pending::<()>()));
    let term = timeout(SOON, leader.elected()).await.expect("no leader");
    assert_eq!(leader.term(), Some(term));
    wait(&mut changes);
    let resigned = timeout(SOON, leader.resign()).await;
    resigned.expect("it still leads");
    assert!(run.await.unwrap().unwrap().is_none());
    wait(&mut changes);
    drop(elected);
    drop(leader);
    assert_eq!(changes.next().await, None);
}
