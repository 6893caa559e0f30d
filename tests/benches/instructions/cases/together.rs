//! One task acquires many keys at once, and then releases them at once.
//!
//! On one thread, the first of them are under way when the others come up, and those go together. So each round sends the same
//! commands, however busy the machine is: that is what tells this case from `many_keys`.

use distlock::{Client, Guard, Lock};
use futures_util::future::join_all;

use crate::bare::{Bare, Name};
use crate::parts::{Parts, Side};

const ROUNDS: usize = 15;
const PAIRS: [usize; 2] = [1, 2];

/// More than go alone, so that most of them go together.
const AT_ONCE: usize = 128;

pub(super) async fn run(url: &str, parts: &mut Parts) {
    let client = Client::connect(url).await.unwrap();
    let (mut bare, name) = (Bare::connect(url).await, Name::new(0));
    let locks: Vec<Lock> = (0..AT_ONCE)
        .map(|number| client.lock(format!("ours:{number}")))
        .collect();
    pairs(&locks).await;
    for _ in 0..ROUNDS {
        for rounds in PAIRS {
            let ours = async {
                for _ in 0..rounds {
                    pairs(&locks).await;
                }
            };
            parts.count(Side::Library, AT_ONCE * rounds, ours).await;
            let theirs = async {
                for _ in 0..AT_ONCE * rounds {
                    bare.pair(&name).await;
                }
            };
            parts.count(Side::Bare, AT_ONCE * rounds, theirs).await;
        }
    }
}

/// A pair of each lock. All are acquired before the first is released.
async fn pairs(locks: &[Lock]) {
    let acquired = join_all(locks.iter().map(|lock| lock.acquire().into_future())).await;
    let guards = acquired.into_iter().map(Result::unwrap);
    for released in join_all(guards.map(Guard::release)).await {
        released.unwrap();
    }
}
