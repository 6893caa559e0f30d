//! The rights of the user that asks Sentinels: without one of them a client does not connect, does not learn of the other
//! Sentinels, or is not told of another master.

use std::collections::BTreeSet;

use distlock_tests::server::sentinel::{SERVICE, SentinelSet};
use distlock_tests::{RedisServer, eventually_eq, rights};

use crate::row::{Row, rows};
use crate::support::{SOON, client_with, ms};

/// What a client does with a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Connect,
    LearnOfOthers,
    Listen,
    NameDriver,
}

/// Which right is needed for what.
const TABLE: [(&str, Does); 5] = [
    ("&+switch-master", Does::Listen),
    ("+subscribe", Does::Listen),
    ("+sentinel|get-master-addr-by-name", Does::Connect),
    ("+sentinel|sentinels", Does::LearnOfOthers),
    ("+client|setinfo", Does::NameDriver),
];

/// What the client of a user has done, as the Sentinels see it. The client knows only the first of them by its URL.
async fn done(set: &SentinelSet, user: &str) -> Vec<Does> {
    let mut done = Vec::new();
    for at in 0..3 {
        let lines = set.sentinel(at).client_list().await;
        for line in lines.iter().filter(|line| line.field("user") == user) {
            if at > 0 && !done.contains(&Does::LearnOfOthers) {
                done.push(Does::LearnOfOthers);
            }
            if line.subscribes() && !done.contains(&Does::Listen) {
                done.push(Does::Listen);
            }
            if !line.field("lib-name").is_empty() && !done.contains(&Does::NameDriver) {
                done.push(Does::NameDriver);
            }
        }
    }
    done
}

async fn denied(sentinels: &[&RedisServer], user: &str) -> BTreeSet<String> {
    let mut denied = BTreeSet::new();
    for sentinel in sentinels {
        denied.append(&mut sentinel.denied_to(user).await);
    }
    denied
}

async fn f53_each_right_for_sentinels_is_needed(row: &Row) {
    let set = SentinelSet::shared().await;
    let sentinels = [0, 1, 2].map(|at| set.sentinel(at));
    let rights = [
        rights::of_sentinels(),
        rights::of("name of the driver in CLIENT LIST, on Valkey, and on Redis 7.2 and later"),
    ]
    .concat();
    let listed: BTreeSet<&str> = rights.iter().copied().collect();
    let in_table: BTreeSet<&str> = TABLE.iter().map(|(right, _)| *right).collect();
    assert_eq!(listed, in_table, "the guide, and the table");
    let names_driver = sentinels[0].knows("client|setinfo").await;
    let all = [Does::LearnOfOthers, Does::Listen, Does::NameDriver];
    let expected = |without: Option<Does>| {
        let mut expected = all.to_vec();
        expected.retain(|does| Some(*does) != without);
        expected.retain(|does| *does != Does::NameDriver || names_driver);
        expected.sort_by_key(|does| *does as usize);
        expected
    };
    let seen = async |user: &str| {
        let mut seen = done(set, user).await;
        seen.sort_by_key(|does| *does as usize);
        seen
    };
    let all_rights = [("watcher", None)].into_iter();
    let less = TABLE
        .iter()
        .map(|(right, does)| ("lacking", Some((*right, *does))));
    for (number, (name, taken)) in all_rights.chain(less).enumerate() {
        if taken.is_some_and(|(_, does)| does == Does::NameDriver) && !names_driver {
            println!("+client|setinfo is not known to this server");
            continue;
        }
        let user = format!("{name}{number}");
        let right = taken.map(|(right, _)| right);
        let rights = rights.iter().copied().filter(|one| Some(*one) != right);
        let rights: Vec<&str> = rights.collect();
        for sentinel in sentinels {
            sentinel.set_user(&user, &rights).await;
        }
        let url = set.url_of_user(&user);
        // The servers' user is their administrator. Of the Sentinels the URL names one alone.
        let (_, query) = url.split_once('?').expect("the user of the Sentinels");
        let login = set.url();
        let (login, _) = login.split_once('@').expect("the user of the servers");
        let url = format!("{login}@{}/{SERVICE}?{query}", sentinels[0].addr());
        if taken.is_some_and(|(_, does)| does == Does::Connect) {
            let builder = distlock::Client::builder().connect_timeout(ms(3_000));
            let error = builder.connect(&url).await.unwrap_err();
            println!("without {right:?}: {error}");
            row.injected("right taken away", 1);
            assert!(!denied(&sentinels, &user).await.is_empty());
            continue;
        }
        let client = client_with(&url, |builder| builder).await;
        let does = expected(taken.map(|(_, does)| does));
        let what = format!("what {user} does without {right:?}");
        eventually_eq(SOON, what, does, async || seen(&user).await).await;
        let was_denied = async || !denied(&sentinels, &user).await.is_empty();
        let what = format!("whether {user} is denied anything without {right:?}");
        eventually_eq(SOON, what, right.is_some(), was_denied).await;
        drop(client);
        row.injected("right taken away", u64::from(right.is_some()));
    }
}

rows! {
    Real: f53_each_right_for_sentinels_is_needed;
}
