//! The fencing tokens of a multi-lock: each fenced member has one, and the guard of several keys has none.

use distlock::{Member, MultiLock, current};

use crate::conformance::stage::Stage;

/// The keys come in ascending order, so the fenced one is the first or the last.
async fn token_of_a_fenced_member_is_that_of_its_key(stage: &Stage) {
    let client = stage.client().await;
    for [fenced, plain] in [["a", "b"], ["b", "a"]] {
        let before = client.fenced_lock(fenced).acquire().await.unwrap();
        let last = before.token();
        before.release().await.unwrap();
        let both = MultiLock::of([client.fenced_lock(fenced).into(), client.lock(plain).into()]);
        let guard = both.acquire().await.unwrap();
        assert_eq!(guard.fencing_token(), None, "{fenced} is fenced");
        let tokens =
            async { [fenced, plain].map(|key| current(key).and_then(|hold| hold.fencing_token())) };
        let [token, none] = guard.scope(tokens).await.unwrap();
        assert!(token > Some(last) && none.is_none(), "{token:?} {none:?}");
        guard.release().await.unwrap();
    }
}

async fn tokens_of_two_fenced_members_are_told_apart(stage: &Stage) {
    let client = stage.client().await;
    // More grants of one key than of the other, so their tokens differ.
    for _ in 0..3 {
        let guard = client.fenced_lock("b").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    let members = ["a", "b"].map(|key| Member::from(client.fenced_lock(key)));
    let guard = MultiLock::of(members).acquire().await.unwrap();
    assert_eq!(guard.fencing_token(), None);
    let token = |key| current(key).and_then(|hold| hold.fencing_token()).unwrap();
    let [one, two] = guard.scope(async { ["a", "b"].map(token) }).await.unwrap();
    for (key, token) in [("a", one), ("b", two)] {
        let report = client.inspect(key).await.unwrap();
        assert_eq!(report.fencing_token, Some(token), "of {key}");
    }
    guard.release().await.unwrap();
}

async fn multi_lock_of_one_fenced_lock_has_its_token(stage: &Stage) {
    let client = stage.client().await;
    let guard = MultiLock::of([client.fenced_lock("a").into()]).acquire();
    let guard = guard.await.unwrap();
    let token = client.inspect("a").await.unwrap().fencing_token;
    assert_eq!((guard.fencing_token(), token.is_some()), (token, true));
    guard.release().await.unwrap();
}

on_every_backend_and_in_several_slots![
    token_of_a_fenced_member_is_that_of_its_key,
    tokens_of_two_fenced_members_are_told_apart,
    multi_lock_of_one_fenced_lock_has_its_token,
];
