//! The child process: it does what the lines of its input say.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};

use super::kind::{ALL, Locks};
use super::{hand_over, share};
use crate::bare::names;

/// Runs until the input ends.
pub(crate) async fn run(url: &str) {
    let locks = Locks::new(url).await;
    let (_, _, channel) = names(7);
    let mut messages = redis::Client::open(url)
        .unwrap()
        .get_async_pubsub()
        .await
        .unwrap();
    messages.subscribe(&channel).await.unwrap();
    let mut messages = messages.into_on_message();
    for kind in ALL {
        locks.enter(kind, async {}).await;
    }
    // The message of the bare release above.
    futures_util::StreamExt::next(&mut messages).await.unwrap();
    println!("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["take", kind] => {
                let kind = kind.parse().unwrap();
                println!("waiting");
                hand_over::take(&locks, kind, &mut messages).await;
                println!("released");
            }
            ["share", kind, tasks, section, start, end] => {
                let times = [start, end].map(|time| time.parse().unwrap());
                let section = Duration::from_micros(section.parse().unwrap());
                let (kind, tasks) = (kind.parse().unwrap(), tasks.parse().unwrap());
                let served = share::hammer(&locks, kind, tasks, section, times).await;
                println!("served {served}");
            }
            _ => panic!("unknown: {line:?}"),
        }
    }
}
