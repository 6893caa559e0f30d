//! What the process that has the console holds and waits for itself, and what went wrong in it.

use std::time::Duration;

use axum::Router;
use distlock::{Client, Guard};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::{app, clients, json, until_next_look};

const MINUTE: Duration = Duration::from_secs(60);

/// `file:line` of a line of this file.
fn is_at(call_site: &Value, line: u32) {
    let call_site = call_site.as_str().unwrap();
    assert!(
        call_site.contains(&format!("own.rs:{line}:")),
        "{call_site}"
    );
}

#[tokio::test(start_paused = true)]
async fn holds_and_waits_have_their_times_and_lines() {
    let (watcher, worker) = clients();
    let app = app(&watcher);
    let lock = watcher.lock("own");
    let (guard, line) = (lock.acquire().await.unwrap(), line!());
    let _again = guard.reenter().unwrap();
    let _other = worker.lock("other").acquire().await.unwrap();
    let (waits, waits_line) = (lock.acquire().wait(MINUTE), line!());
    let waits = tokio::spawn(waits.into_future());
    let more = tokio::spawn(watcher.lock("other").acquire().into_future());
    tokio::time::sleep(Duration::from_secs(5)).await;

    let seen = json(&app, "/locks/api/locks").await;
    let (own, now) = (&seen["own"], seen["now"].as_u64().unwrap());
    assert_eq!(
        (&own["hold_total"], &own["wait_total"]),
        (&json!(1), &json!(2))
    );
    let hold = &own["holds"][0];
    assert_eq!(
        (&hold["key"], &hold["kind"], &hold["count"]),
        (&json!("own"), &json!("lock"), &json!(2))
    );
    assert_eq!(hold["owner"], guard.owner().to_string());
    assert_eq!(now - hold["since"].as_u64().unwrap(), 5_000);
    let left = hold["lease_ends"].as_u64().unwrap() - now;
    assert!((20_000..=30_000).contains(&left), "{left}");
    is_at(&hold["call_site"], line);

    let all = own["waits"].as_array().unwrap();
    let wait = all.iter().find(|wait| wait["key"] == "own").unwrap();
    assert_eq!(now - wait["since"].as_u64().unwrap(), 5_000);
    assert_eq!(wait["gives_up"].as_u64().unwrap() - now, 55_000);
    assert_eq!(
        (&wait["ahead"], &wait["blocked_by"]["by"]),
        (&json!(0), &json!("own_hold"))
    );
    is_at(&wait["call_site"], waits_line);
    is_at(&wait["blocked_by"]["call_site"], line);
    let wait = all.iter().find(|wait| wait["key"] == "other").unwrap();
    assert_eq!(
        (&wait["gives_up"], &wait["blocked_by"]["by"]),
        (&json!(null), &json!("other_client"))
    );

    // The page of a key has what is about this key.
    let seen = json(&app, "/locks/api/locks/other").await;
    assert_eq!(seen["own_holds"], json!([]));
    assert_eq!(seen["own_waits"].as_array().unwrap().len(), 1);

    // Times do not seem to change from look to look.
    until_next_look().await;
    let later = json(&app, "/locks/api/locks").await;
    assert_eq!(later["own"]["waits"], own["waits"]);
    waits.abort();
    more.abort();
}

#[tokio::test(start_paused = true)]
async fn many_waits_are_counted_and_some_are_shown() {
    let (watcher, _) = clients();
    let lock = watcher.lock("own");
    let _guard = lock.acquire().await.unwrap();
    for _ in 0..150 {
        tokio::spawn(lock.acquire().into_future());
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let own = &json(&app(&watcher), "/locks/api/locks").await["own"];
    assert_eq!(own["wait_total"], 150);
    assert_eq!(own["waits"].as_array().unwrap().len(), 100);
    let one = json(&app(&watcher), "/locks/api/lock?key=own").await;
    assert_eq!(
        (&one["own_wait_total"], &one["own_hold_total"]),
        (&json!(150), &json!(1))
    );
    assert_eq!(one["own_waits"].as_array().unwrap().len(), 100);
}

/// How many wait for a key: in the list, on its own page, and in the sum of all keys.
async fn waiting(app: &Router, key: &str) -> (Value, Value, Value) {
    until_next_look().await;
    let seen = json(app, "/locks/api/locks").await;
    let locks = seen["locks"].as_array().unwrap();
    let lock = locks.iter().find(|lock| lock["key"] == key).unwrap();
    let one = json(app, &format!("/locks/api/locks/{key}")).await;
    let sum = seen["contention"].as_array().unwrap().last().unwrap();
    (
        lock["waiting"].clone(),
        one["lock"]["waiting"].clone(),
        sum["waiting"].clone(),
    )
}

#[tokio::test(start_paused = true)]
async fn waits_of_this_process_and_of_others_are_counted_once_each() {
    let (watcher, worker) = clients();
    let app = app(&watcher);
    let _guards = (
        worker.lock("theirs").acquire().await.unwrap(),
        watcher.lock("ours").acquire().await.unwrap(),
        worker.fair_lock("fair").acquire().await.unwrap(),
    );
    for key in ["theirs", "ours"] {
        for _ in 0..7 {
            tokio::spawn(watcher.lock(key).acquire().wait(MINUTE).into_future());
        }
    }
    for _ in 0..7 {
        tokio::spawn(
            watcher
                .fair_lock("fair")
                .acquire()
                .wait(MINUTE)
                .into_future(),
        );
    }
    tokio::spawn(worker.lock("ours").acquire().wait(MINUTE).into_future());
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Seven of this process behind another one, seven behind its own hold and one process more, and seven in a queue.
    assert_eq!(
        waiting(&app, "theirs").await,
        (json!(7), json!(7), json!(22))
    );
    assert_eq!(waiting(&app, "ours").await, (json!(8), json!(8), json!(22)));
    assert_eq!(waiting(&app, "fair").await, (json!(7), json!(7), json!(22)));
}

#[tokio::test(start_paused = true)]
async fn console_of_a_pattern_shows_no_other_key_of_the_process() {
    let (watcher, _) = clients();
    let _guard = watcher.multi_lock(["a:1", "b:1"]).acquire().await.unwrap();
    let console = distlock_tower::console(watcher).pattern("b:*");
    let own = &json(&axum::Router::from(console), "/api/locks").await["own"];
    assert_eq!(
        (&own["hold_total"], &own["holds"][0]["key"]),
        (&json!(1), &json!("b:1"))
    );
}

#[tokio::test(start_paused = true)]
async fn console_of_a_pattern_names_no_other_key_that_is_held_around_a_wait() {
    let (watcher, worker) = clients();
    let console = distlock_tower::console(watcher.clone()).pattern("b:*");
    let app = axum::Router::from(console);
    let _busy = worker.lock("b:3").acquire().await.unwrap();
    let outer = watcher.lock("outside").acquire().await.unwrap();
    let middle = watcher.lock("b:2").acquire().await.unwrap();
    let inner = watcher.lock("b:3").acquire();
    let waits = outer.scope(middle.scope(async { inner.await.err() }));
    let waits = tokio::time::timeout(MINUTE, waits);
    let looks = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for path in ["/api/locks", "/api/lock?key=b:3"] {
            let seen = json(&app, path).await;
            let waits = seen.get("own_waits").unwrap_or(&seen["own"]["waits"]);
            assert_eq!(waits[0]["inside"], json!(["b:2"]), "{path}");
            assert!(!seen.to_string().contains("outside"), "{seen}");
        }
    };
    tokio::select! {
        () = looks => {}
        _ = waits => panic!("the key is held"),
    }
}

#[tokio::test(start_paused = true)]
async fn page_of_a_key_has_what_the_process_holds_and_waits_for_also_behind_many_older_ones() {
    let (watcher, worker) = clients();
    let app = app(&watcher);
    let mut guards = Vec::new();
    for number in 0..100 {
        let key = format!("old:{number}");
        guards.push(watcher.lock(key).acquire().await.unwrap());
    }
    for _ in 0..100 {
        tokio::spawn(watcher.lock("old:0").acquire().into_future());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    guards.push(watcher.lock("mine").acquire().await.unwrap());
    let _theirs = worker.lock("theirs").acquire().await.unwrap();
    tokio::spawn(watcher.lock("theirs").acquire().into_future());
    tokio::time::sleep(Duration::from_millis(1)).await;

    let seen = json(&app, "/locks/api/lock?key=mine").await;
    let holds = seen["own_holds"].as_array().unwrap();
    assert_eq!(holds.len(), 1, "{seen}");
    assert_eq!(holds[0]["key"], "mine");
    let seen = json(&app, "/locks/api/lock?key=theirs").await;
    let waits = seen["own_waits"].as_array().unwrap();
    assert_eq!(waits.len(), 1, "{seen}");
    assert_eq!(waits[0]["key"], "theirs");
}

#[tokio::test(start_paused = true)]
async fn lost_write_lock_of_the_process_is_one_problem() {
    let (watcher, _) = clients();
    let app = app(&watcher);
    let lease = Duration::from_secs(3);
    let lock = watcher.rw_lock("lost").write();
    let _lost = lock.acquire().lease(lease).await.unwrap();
    json(&app, "/locks/api/locks").await;
    tokio::time::sleep(2 * lease).await;
    let problems = &json(&app, "/locks/api/locks").await["problems"];
    let problems = problems.as_array().unwrap();
    let kinds: Vec<_> = problems.iter().map(|one| &one["kind"]).collect();
    assert_eq!(kinds, ["lost"], "{problems:#?}");
}

/// Holds one key, and waits for the other inside of its scope.
async fn one_inside_the_other(client: Client, keys: [&str; 2], both: &Barrier) {
    let guard: Guard = client.lock(keys[0]).acquire().await.unwrap();
    both.wait().await;
    let inner = client.lock(keys[1]).acquire().wait(MINUTE);
    let _busy = guard.scope(async { inner.await.err() }).await;
}

#[tokio::test(start_paused = true)]
async fn console_of_a_pattern_names_no_other_key_that_is_held_around_a_deadlock() {
    let (watcher, _) = clients();
    let console = distlock_tower::console(watcher.clone()).pattern("b:*");
    let app = axum::Router::from(console);
    let outer = watcher.lock("outside").acquire().await.unwrap();
    let both = Barrier::new(2);
    let one = one_inside_the_other(watcher.clone(), ["b:1", "a:2"], &both);
    let two = outer.scope(one_inside_the_other(watcher, ["a:2", "b:1"], &both));
    let look = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        json(&app, "/api/locks").await
    };
    let seen = tokio::select! {
        seen = look => seen,
        _ = async { tokio::join!(one, two) } => panic!("they wait for each other"),
    };
    let deadlock = &seen["problems"][0];
    assert_eq!(deadlock["kind"], "possible_deadlock");
    let text = deadlock["text"].as_str().unwrap();
    assert!(
        text.contains("b:1 and holds a:2") && text.contains("a:2 and holds b:1"),
        "{text}"
    );
    assert!(!seen.to_string().contains("outside"), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn deadlock_comes_first_and_then_what_was_lost() {
    let (watcher, worker) = clients();
    let app = app(&watcher);
    let lease = Duration::from_secs(3);
    let (lost, line) = (watcher.lock("lost").acquire(), line!());
    let _lost = lost.lease(lease).await.unwrap();
    let both = Barrier::new(2);
    let one = one_inside_the_other(watcher.clone(), ["a", "b"], &both);
    let two = one_inside_the_other(watcher.clone(), ["b", "a"], &both);
    let look = async {
        json(&app, "/locks/api/locks").await;
        tokio::time::sleep(2 * lease).await;
        // The first look has seen the hold, and this one sees that it is gone.
        json(&app, "/locks/api/locks").await
    };
    let seen = tokio::select! {
        seen = look => seen,
        _ = async { tokio::join!(one, two) } => panic!("they wait for each other"),
    };
    let problems = seen["problems"].as_array().unwrap();
    let kinds: Vec<_> = problems.iter().map(|one| &one["kind"]).collect();
    // Once: the server's look, which has seen its lease run out, says nothing new.
    assert_eq!(kinds, ["possible_deadlock", "lost"], "{problems:#?}");
    let mut keys = problems[0]["keys"].as_array().unwrap().clone();
    keys.sort_by_key(Value::to_string);
    assert_eq!(keys, ["a", "b"]);
    let text = problems[0]["text"].as_str().unwrap();
    assert!(
        text.contains("own.rs:") && text.contains("waits for a"),
        "{text}"
    );
    let text = problems[1]["text"].as_str().unwrap();
    assert!(text.contains(&format!("own.rs:{line}:")), "{text}");

    // It is not told for ever.
    drop(worker);
    tokio::time::sleep(10 * MINUTE).await;
    let seen = json(&app, "/locks/api/locks").await;
    assert_eq!(seen["problems"], json!([]));
}
