//! Row 100: the name in the URL is pointed at another server again and again.

use distlock::Client;
use distlock_tests::{ByNames, Names, RedisServer, eventually};

use crate::log::lines_with;
use crate::row::{Row, rows};
use crate::support::{SOON, ms};

const NAME: &str = "turning.test";

async fn f100_answers_that_change_again_after_a_move_are_told_in_one_warning(row: &Row) {
    let servers = [RedisServer::start().await, RedisServer::start().await];
    let names = Names::new();
    names.lead(NAME, [servers[0].addr()]);
    let builder = Client::builder().by_names(&names).look_up_interval(ms(50));
    let client = builder.connect("redis://turning.test").await.unwrap();
    let told = |part: &str| {
        let count = lines_with(&["WARN", NAME, part]);
        if count > 0 {
            Ok(())
        } else {
            Err(part.to_owned())
        }
    };
    names.lead(NAME, [servers[1].addr()]);
    eventually(SOON, "a warning of the move", || async {
        told("leads to another server")
    })
    .await;
    names.lead(NAME, [servers[0].addr()]);
    eventually(SOON, "a warning of the rotation", || async {
        told("one server after another")
    })
    .await;
    // Many more answers, and no further word.
    for turn in 0..4 {
        names.lead(NAME, [servers[turn % 2].addr()]);
        let asked = || async {
            let asked = names.asked(NAME);
            if asked >= 8 { Ok(()) } else { Err(asked) }
        };
        eventually(SOON, "look-ups", asked).await;
    }
    assert_eq!(lines_with(&["WARN", NAME, "leads to another server"]), 1);
    assert_eq!(lines_with(&["WARN", NAME, "one server after another"]), 1);
    client
        .lock("k")
        .acquire()
        .wait(SOON)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    row.injected("answer without the server", names.asked(NAME));
}

rows! {
    Real: f100_answers_that_change_again_after_a_move_are_told_in_one_warning;
}
