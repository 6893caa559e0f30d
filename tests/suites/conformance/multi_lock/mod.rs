//! The multi-lock: all or nothing, and no deadlock in any order of the keys.

mod gates;
mod members;
mod positions;
mod same_key;
mod share;
mod tokens;

use std::collections::BTreeSet;
use std::time::Duration;

use distlock::{Client, Error};
use distlock_tests::faults::{Fault, Op};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::stage::{Stage, refused};

const KEYS: [&str; 3] = ["order:42", "stock:7", "item:9"];

in_one_slot! {
    all_are_held_and_all_are_freed_by_one_command_each,
}

on_every_backend_and_in_several_slots![
    one_that_is_taken_keeps_all_free,
    key_of_another_type_is_named_and_keeps_all_free,
    keys_may_come_in_any_order_and_twice,
    opposite_orders_never_wait_for_each_other,
    random_subsets_go_on_for_ever,
    waits_for_the_one_key_that_is_taken,
    lost_with_any_of_its_keys,
    enters_again_what_the_scope_holds_and_takes_the_rest,
    no_key_and_bad_keys_are_refused,
    unheard_grant_leaves_no_key_taken,
];

async fn is_free(client: &Client, key: &str) -> bool {
    !client.lock(key).is_locked().await.unwrap()
}

async fn all_are_held_and_all_are_freed_by_one_command_each(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let guard = client.multi_lock(KEYS).acquire().await.unwrap();
    for key in KEYS {
        assert!(other.lock(key).try_acquire().await.unwrap().is_none());
    }
    assert_eq!(
        guard.keys().collect::<Vec<_>>(),
        ["item:9", "order:42", "stock:7"]
    );
    guard.release().await.unwrap();
    for key in KEYS {
        assert!(is_free(&other, key).await);
    }
    assert_eq!(stage.faults().calls(Op::Attempt), 1);
    assert_eq!(stage.faults().calls(Op::Release), 1);
}

async fn one_that_is_taken_keeps_all_free(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    for taken in KEYS {
        let held = other.lock(taken).acquire().await.unwrap();
        let multi = client.multi_lock(KEYS);
        assert!(multi.try_acquire().await.unwrap().is_none());
        let error = loop {
            match refused(multi.acquire().wait(stage.part(20)).await) {
                // The server of a busy machine may not answer in this time.
                Error::Unavailable { .. } => {}
                error => break error,
            }
        };
        assert!(
            matches!(&error, Error::Timeout { key, .. } if key == taken),
            "{error}"
        );
        for key in KEYS {
            assert_eq!(is_free(&other, key).await, key != taken);
        }
        held.release().await.unwrap();
    }
}

async fn key_of_another_type_is_named_and_keeps_all_free(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    for number in KEYS {
        let semaphore = client.semaphore(number);
        assert!(semaphore.try_set_permits(5).await.unwrap());
        let multi = client.multi_lock(KEYS);
        let names_it = |error: Error| {
            let is_named = matches!(&error, Error::WrongType { key, .. } if key == number);
            assert!(is_named, "{number}: {error}");
        };
        names_it(multi.try_acquire().await.unwrap_err());
        names_it(refused(multi.acquire().await));
        // What is in other slots was granted, and is given back in the background.
        let others_are_free = async || {
            for key in KEYS.into_iter().filter(|key| *key != number) {
                if !is_free(&other, key).await {
                    return false;
                }
            }
            true
        };
        stage
            .eventually("the others are free", stage.part(2), others_are_free)
            .await;
        assert_eq!(semaphore.available_permits().await.unwrap(), 5);
        assert!(semaphore.delete().await.unwrap());
    }
}

async fn keys_may_come_in_any_order_and_twice(stage: &Stage) {
    let client = stage.client().await;
    let keys = ["b", "a", "b", "c", "a"];
    let guard = client.multi_lock(keys).acquire().await.unwrap();
    assert_eq!(guard.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(client.lock("b").hold_count().await.unwrap(), 1);
    guard.release().await.unwrap();
    assert!(is_free(&client, "b").await);
}

async fn opposite_orders_never_wait_for_each_other(stage: &Stage) {
    let clients = [stage.client().await, stage.client().await];
    let mut tasks = JoinSet::new();
    for n in 0..8_usize {
        let client = clients[n % 2].clone();
        tasks.spawn(async move {
            let keys = if n % 4 < 2 { ["a", "b"] } else { ["b", "a"] };
            for _ in 0..20 {
                client
                    .multi_lock(keys)
                    .acquire()
                    .run(tokio::task::yield_now())
                    .await
                    .unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

async fn random_subsets_go_on_for_ever(stage: &Stage) {
    let clients = [stage.client().await, stage.client().await];
    let names: Vec<String> = (0..10).map(|n| format!("key:{n}")).collect();
    let inside = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let mut tasks = JoinSet::new();
    for n in 0..24_u64 {
        let (client, names) = (clients[n as usize % 2].clone(), names.clone());
        let inside = std::sync::Arc::clone(&inside);
        tasks.spawn(async move {
            let mut random = StdRng::seed_from_u64(n);
            for _ in 0..10 {
                let many = random.random_range(1..5);
                let keys: Vec<String> = names.sample(&mut random, many).cloned().collect();
                let guard = client.multi_lock(keys.clone()).acquire().await.unwrap();
                for key in &keys {
                    assert!(
                        inside.lock().unwrap().insert(key.clone()),
                        "{key} is held twice"
                    );
                }
                tokio::task::yield_now().await;
                for key in &keys {
                    inside.lock().unwrap().remove(key);
                }
                guard.release().await.unwrap();
            }
        });
    }
    let all = async {
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    };
    timeout(Duration::from_secs(60), all)
        .await
        .expect("it stands still");
}

async fn waits_for_the_one_key_that_is_taken(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let held = other.lock("stock:7").acquire().await.unwrap();
    let start = Instant::now();
    let releasing = async {
        sleep(stage.part(5)).await;
        // Nothing is kept while it waits.
        assert!(is_free(&other, "order:42").await);
        held.release().await.unwrap();
    };
    let waiting = async { client.multi_lock(KEYS).acquire().await.unwrap() };
    let ((), guard) = tokio::join!(releasing, waiting);
    stage.assert_took(start, stage.part(5));
    guard.release().await.unwrap();
}

async fn lost_with_any_of_its_keys(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let guard = client.multi_lock(KEYS).acquire().await.unwrap();
    other.lock("stock:7").force_release().await.unwrap();
    let cut = guard.scope(std::future::pending::<()>()).await;
    assert!(refused(cut).is_lost());
    assert!(!guard.is_held());
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(is_free(&other, "order:42").await);
}

async fn enters_again_what_the_scope_holds_and_takes_the_rest(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let order = client.lock("order:42");
    let body = async {
        let guard = client.multi_lock(KEYS).acquire().await.unwrap();
        assert_eq!(order.hold_count().await.unwrap(), 2);
        let nested = guard.scope(
            client
                .multi_lock(["stock:7", "item:9"])
                .acquire()
                .into_future(),
        );
        nested.await.unwrap().unwrap().release().await.unwrap();
        guard.release().await.unwrap();
        assert!(is_free(&other, "stock:7").await && !is_free(&other, "order:42").await);
    };
    order.acquire().run(body).await.unwrap();
    assert!(is_free(&other, "order:42").await);
}

async fn no_key_and_bad_keys_are_refused(stage: &Stage) {
    let client = stage.client().await;
    let none: [&str; 0] = [];
    let error = refused(client.multi_lock(none).acquire().await);
    assert!(matches!(error, Error::NoKeys), "{error}");
    let error = refused(client.multi_lock(["a", ""]).acquire().await);
    assert!(matches!(error, Error::InvalidKey { .. }), "{error}");
}

async fn unheard_grant_leaves_no_key_taken(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    stage.faults().always(Op::Attempt, Fault::FailAfter);
    let error = refused(client.multi_lock(KEYS).acquire().wait(stage.part(10)).await);
    assert!(error.is_unavailable(), "{error}");
    stage.faults().clear(Op::Attempt);
    let next = other.multi_lock(KEYS).acquire().wait(stage.part(2)).await;
    next.unwrap().release().await.unwrap();
    assert!(stage.faults().hits(Op::Attempt) > 0);
}
