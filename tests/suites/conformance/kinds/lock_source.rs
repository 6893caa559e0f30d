//! Locks where their kind and their servers are settings: what each mode takes, and what cannot be.

use std::time::Duration;

use distlock::test_util::modes;
use distlock::{Client, Error, LockSource, Mode, Quorum};

use crate::conformance::stage::Stage;

/// Is the lock that a mode names taken, as its own constructor sees it?
async fn is_taken(client: &Client, mode: Mode, key: &str) -> bool {
    let busy = match mode {
        Mode::Reentrant => client.lock(key).is_locked().await,
        Mode::NonReentrant => client.non_reentrant_lock(key).is_locked().await,
        Mode::Spin => client.spin_lock(key).is_locked().await,
        Mode::Fenced => client.fenced_lock(key).is_locked().await,
        Mode::Fair => client.fair_lock(key).is_locked().await,
        Mode::NonReentrantFair => client.non_reentrant_fair_lock(key).is_locked().await,
        Mode::Read => client.rw_lock(key).read().is_locked().await,
        _ => client.rw_lock(key).write().is_locked().await,
    };
    busy.unwrap()
}

async fn each_mode_takes_the_lock_of_its_name(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let locks = LockSource::from(&client);
    for mode in modes() {
        let key = mode.to_string();
        let guard = locks.acquire(mode, [key.as_str()]).await.unwrap();
        assert!(is_taken(&client, mode, &key).await, "{mode}");
        assert_eq!(
            guard.fencing_token().is_some(),
            mode == Mode::Fenced,
            "{mode}"
        );
        let again = LockSource::from(&other).acquire(mode, [key.as_str()]);
        let again = again.wait(Duration::ZERO).await;
        assert_eq!(again.is_ok(), mode == Mode::Read, "{mode}");
        let entered = guard
            .scope(locks.acquire(mode, [key.as_str()]).run(async {}))
            .await
            .unwrap();
        let may_enter = !matches!(mode, Mode::NonReentrant | Mode::NonReentrantFair);
        assert_eq!(entered.is_ok(), may_enter, "{mode}");
        guard.release().await.unwrap();
    }
}

async fn several_keys_are_all_taken_in_that_mode(stage: &Stage) {
    let client = stage.client().await;
    let locks = LockSource::from(&client);
    for mode in modes().filter(|mode| *mode != Mode::Fenced) {
        let keys = [format!("{mode}:b"), format!("{mode}:a")];
        let guard = locks.acquire(mode, &keys).await.unwrap();
        for key in &keys {
            assert!(is_taken(&client, mode, key).await, "{mode}");
        }
        guard.release().await.unwrap();
    }
}

async fn invalid_settings_are_refused_before_anything_is_sent(stage: &Stage) {
    let client = stage.client().await;
    let one = LockSource::from(&client);
    let several = LockSource::from(Quorum::new([client.clone()]));
    for (locks, mode, keys) in [
        (&one, Mode::Fenced, &["a", "b"][..]),
        (&several, Mode::Reentrant, &["a", "b"]),
        (&several, Mode::Fair, &["a"]),
        (&several, Mode::NonReentrantFair, &["a"]),
        (&several, Mode::Fenced, &["a"]),
    ] {
        let error = locks.acquire(mode, keys.iter().copied()).await.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.is_permanent());
    }
    for locks in [&one, &several] {
        let none: [&str; 0] = [];
        let error = locks.acquire(Mode::Write, none).await.unwrap_err();
        assert!(matches!(error, Error::NoKeys), "{error}");
    }
}

async fn redlock_takes_what_a_majority_can_agree_on(stage: &Stage) {
    let client = stage.client().await;
    let locks = LockSource::from(Quorum::new([client.clone()]));
    for mode in [
        Mode::Reentrant,
        Mode::NonReentrant,
        Mode::Spin,
        Mode::Read,
        Mode::Write,
    ] {
        let key = mode.to_string();
        let guard = locks.acquire(mode, [key.as_str()]).await.unwrap();
        assert!(is_taken(&client, mode, &key).await, "{mode}");
        guard.release().await.unwrap();
        assert!(!is_taken(&client, mode, &key).await, "{mode}");
    }
    let writing = locks.acquire(Mode::Write, ["report"]).await.unwrap();
    let inside = writing.scope(locks.acquire(Mode::Read, ["report"]).run(async {}));
    let refused = inside.await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Deadlock { .. }), "{refused}");
    writing.release().await.unwrap();
}

on_every_backend! {
    each_mode_takes_the_lock_of_its_name,
    several_keys_are_all_taken_in_that_mode,
    invalid_settings_are_refused_before_anything_is_sent,
    redlock_takes_what_a_majority_can_agree_on,
}
