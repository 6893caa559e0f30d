//! A Redlock on the same five servers.

use distlock_interop::Kind;
use distlock_tests::RedisServer;
use futures_util::future::join_all;

use crate::case::{Case, Play, cases};
use crate::stage::{SHORT, Stage, assert_soon, start};
use crate::table::Row;

async fn majority_decides_while_two_of_five_servers_hang(stage: Stage) {
    let mut servers = join_all((0..5).map(|_| RedisServer::start())).await;
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    let sides = [stage.holder, stage.waiter].map(|side| start(side, &urls, SHORT));
    let [holder, waiter]: [_; 2] = join_all(sides).await.try_into().unwrap();
    let (lock, holder, waiter) = (stage.lock(), holder.actor("h"), waiter.actor("w"));
    for hang in [false, true] {
        if hang {
            servers[0].stop();
            servers[3].stop();
        }
        let held = holder.acquire(&lock, Some(15_000)).granted().await;
        let refused = waiter.acquire(&lock, Some(500)).grant().await;
        assert!(refused.is_none(), "held twice since {}", held.ended);
        let waiting = waiter.acquire(&lock, Some(20_000));
        let released = holder.release(&lock).timed::<bool>().await;
        let granted = waiting.granted().await;
        assert!(granted.ended > released.began, "granted before the release");
        assert_soon("the grant", released.ended, granted.ended);
        assert!(
            holder.acquire(&lock, Some(500)).grant().await.is_none(),
            "held twice"
        );
        waiter.release(&lock).value::<bool>().await;
    }
}

pub(super) fn cases() -> Vec<Case> {
    let cases = cases![Row::Red, Kind::Red; majority_decides_while_two_of_five_servers_hang];
    // Its clients have short timeouts.
    let pairs = cases.into_iter().map(|case| case.play(Play::Pairwise));
    pairs.collect()
}
