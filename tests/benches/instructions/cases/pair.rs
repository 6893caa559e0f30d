//! One task acquires and releases a key that nobody else uses.

use distlock::Client;

use crate::bare::{Bare, Name};
use crate::cases::pairs_of;
use crate::parts::{Parts, Side};

const ROUNDS: usize = 25;
const PAIRS: [usize; 2] = [5, 25];

pub(super) async fn run(url: &str, parts: &mut Parts) {
    let client = Client::connect(url).await.unwrap();
    let (mut bare, name) = (Bare::connect(url).await, Name::new(0));
    let lock = client.lock("ours:0");
    // The first command of a connection does more than the next ones.
    pairs_of(&lock, 1).await;
    for _ in 0..ROUNDS {
        for pairs in PAIRS {
            parts
                .count(Side::Library, pairs, pairs_of(&lock, pairs))
                .await;
            let theirs = async {
                for _ in 0..pairs {
                    bare.pair(&name).await;
                }
            };
            parts.count(Side::Bare, pairs, theirs).await;
        }
    }
}
