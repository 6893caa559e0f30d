//! What the log says of a leader: when its term begins and ends, and why, and that its campaign has failed.

use std::future::{pending, ready};
use std::time::Duration;

use distlock::{Client, MemoryServer};
use tracing::Level;

use crate::spans::{collect, seen};

/// What was said of a key at `INFO`: the term, whether it begins, and the reason of its end.
fn told(key: &str) -> Vec<(String, bool, Option<String>)> {
    let seen = seen(key).into_iter().filter(|one| one.level == Level::INFO);
    let told = seen.map(|one| {
        let begins = one.name.starts_with("this process leads;");
        assert!(
            begins || one.name.starts_with("this process leads no more;"),
            "{one:?}"
        );
        let field = |name: &str| one.fields.0.get(name).cloned();
        (field("term").expect("a term"), begins, field("reason"))
    });
    told.collect()
}

/// The beginning and the end of a term.
fn term(term: u64, reason: &str) -> [(String, bool, Option<String>); 2] {
    let term = term.to_string();
    let end = (term.clone(), false, Some(reason.to_owned()));
    [(term, true, None), end]
}

#[tokio::test(start_paused = true)]
async fn each_term_is_told_when_it_begins_and_when_it_ends_with_the_reason() {
    collect();
    let (key, client) = ("leader told", Client::in_memory());
    let leader = client.leader(key);
    let mut expected = Vec::new();

    let value = leader.run(ready).await.unwrap();
    expected.extend(term(value.unwrap(), "the body has ended"));
    assert_eq!(told(key), expected);

    let run = tokio::spawn(leader.run(|_| pending::<()>()));
    let first = leader.elected().await;
    expected.push((first.to_string(), true, None));
    assert_eq!(told(key), expected);
    expected.pop();
    assert!(client.fenced_lock(key).force_release().await.unwrap());
    let lost = async || leader.term().is_some_and(|term| term != first);
    while !lost().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    expected.extend(term(first, "the lead was lost"));
    let second = leader.elected().await;
    leader.resign().await;
    assert!(run.await.unwrap().unwrap().is_none());
    expected.extend(term(second, "it has resigned"));
    assert_eq!(told(key), expected);

    let run = tokio::spawn(leader.run(|_| pending::<()>()));
    let third = leader.elected().await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    expected.extend(term(third, "the run was dropped, or its body has panicked"));
    assert_eq!(told(key), expected);
}

#[tokio::test(start_paused = true)]
async fn campaign_that_ends_with_an_error_is_told_unless_its_client_is_closed() {
    collect();
    let (key, client) = ("campaign told", Client::in_memory());
    let semaphore = client.semaphore(key);
    assert!(semaphore.try_set_permits(1).await.unwrap());
    let run = tokio::spawn(client.leader(key).run(ready));
    let error = run.await.unwrap().unwrap_err().to_string();
    let told = seen(key).into_iter().filter(|one| one.level == Level::WARN);
    let told: Vec<_> = told.collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].name.starts_with("the campaign ended with an error"));
    assert_eq!(told[0].fields.0.get("error"), Some(&error));

    let key = "campaign closed";
    client.close(Duration::from_secs(5)).await.unwrap();
    client.leader(key).run(ready).await.unwrap_err();
    assert!(seen(key).iter().all(|one| one.level != Level::WARN));
}

#[tokio::test(start_paused = true)]
async fn campaign_whose_lead_was_lost_while_its_body_ended_is_told() {
    collect();
    let key = "campaign lost at its end";
    let server = MemoryServer::new();
    let [client, other] = [(); 2].map(|()| Client::builder().in_memory(&server).unwrap());
    let freed = async |_| other.fenced_lock(key).force_release().await.unwrap();
    let error = client.leader(key).run(freed).await.unwrap_err();
    assert!(error.is_lost() && error.body_completed(), "{error}");
    let told = seen(key).into_iter().filter(|one| {
        one.level == Level::WARN && one.name.starts_with("the campaign ended with an error")
    });
    assert_eq!(told.count(), 1);
}
