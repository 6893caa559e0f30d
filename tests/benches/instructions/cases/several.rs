//! One task acquires and releases three keys together that nobody else uses.

use distlock::{Client, MultiLock};

use crate::bare::{Bare, Name};
use crate::parts::{Parts, Side};

const ROUNDS: usize = 25;
const PAIRS: [usize; 2] = [5, 25];

pub(super) async fn run(url: &str, parts: &mut Parts) {
    let client = Client::connect(url).await.unwrap();
    let (mut bare, names) = (Bare::connect(url).await, [0, 1, 2].map(Name::new));
    let lock = client.multi_lock([0, 1, 2].map(|number| format!("ours:{number}")));
    // The first command of a connection does more than the next ones.
    pairs_of(&lock, 1).await;
    for _ in 0..ROUNDS {
        for pairs in PAIRS {
            parts
                .count(Side::Library, pairs, pairs_of(&lock, pairs))
                .await;
            let theirs = async {
                for _ in 0..pairs {
                    bare.pair_of_all(&names).await;
                }
            };
            parts.count(Side::Bare, pairs, theirs).await;
        }
    }
}

async fn pairs_of(lock: &MultiLock, pairs: usize) {
    for _ in 0..pairs {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
}
