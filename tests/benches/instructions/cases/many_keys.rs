//! Many tasks acquire and release, each another key.

use distlock::Client;
use tokio::task::JoinSet;

use crate::bare::{Bare, Name};
use crate::parts::{Parts, Side};

const ROUNDS: usize = 7;
const TASKS: usize = 64;
const PAIRS: [usize; 2] = [2, 6];

pub(super) async fn run(url: &str, parts: &mut Parts) {
    let client = Client::connect(url).await.unwrap();
    let bare = Bare::connect(url).await;
    let first = client.lock("first").acquire().await.unwrap();
    first.release().await.unwrap();
    for _ in 0..ROUNDS {
        for pairs in PAIRS {
            let ours = together(|task| {
                let lock = client.lock(format!("ours:{task}"));
                async move {
                    for _ in 0..pairs {
                        lock.acquire().await.unwrap().release().await.unwrap();
                    }
                }
            });
            parts.count(Side::Library, TASKS * pairs, ours).await;
            let theirs = together(|task| {
                let (mut bare, name) = (bare.clone(), Name::new(task));
                async move {
                    for _ in 0..pairs {
                        bare.pair(&name).await;
                    }
                }
            });
            parts.count(Side::Bare, TASKS * pairs, theirs).await;
        }
    }
}

async fn together<F>(work: impl Fn(usize) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let tasks: JoinSet<()> = (0..TASKS).map(work).collect();
    tasks.join_all().await;
}
