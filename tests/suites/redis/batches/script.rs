//! The script of a batch, bare.

use distlock::test_util::script;
use distlock_tests::RedisServer;
use redis::Value;

/// The answer of a batch to an operation whose lease is no number.
pub(super) fn has_no_valid_lease(failed: &Value) {
    let Value::Array(failed) = failed else {
        panic!("{failed:?}")
    };
    let [Value::BulkString(word), Value::BulkString(error)] = failed.as_slice() else {
        panic!("{failed:?}")
    };
    assert_eq!(word, b"failed");
    let error = String::from_utf8_lossy(error);
    assert!(error.contains("not an integer"), "{error}");
}

#[tokio::test]
async fn error_of_one_operation_in_the_script_of_a_batch_is_its_own_answer() {
    let server = RedisServer::start().await;
    let owner = |name: &str| format!("0f0e0d0c-0b0a-0908-0706-050403020100:{name}");
    let [one, two, three] = ["1", "2", "3"].map(owner);
    let channel = "redisson_lock__channel:{a}";
    let words = [
        "EVAL",
        script("LOCK_BATCH").unwrap(),
        "8",
        "a",
        "b",
        "c",
        "d",
        "e",
        "f",
        "g",
        "a",
    ];
    let mut of_each = vec![&*one, "30000", &*two, "1.5"];
    // Two that are granted together, and two of which one has no valid lease.
    of_each.extend(["2", &three, "30000", &three, "30000"]);
    of_each.extend(["2", &three, "30000", &three, "1.5"]);
    of_each.extend([&*three, "30000", &*one, channel]);
    let answer = server.cli(&[&words[..], &of_each].concat()).await;
    let Value::Array(answers) = answer else {
        panic!("{answer:?}")
    };
    let [
        Value::Nil,
        failed,
        Value::Nil,
        too,
        Value::Nil,
        Value::Int(0),
    ] = answers.as_slice()
    else {
        panic!("{answers:?}")
    };
    for failed in [failed, too] {
        has_no_valid_lease(failed);
    }
    assert_eq!(server.keys().await, ["c", "d", "g"]);
}

#[tokio::test]
async fn owner_that_has_its_locks_already_gets_the_longer_lease_in_a_batch() {
    let server = RedisServer::start().await;
    let owner = "0f0e0d0c-0b0a-0908-0706-050403020100:1";
    for lease in ["30000", "60000"] {
        let words = [
            "EVAL",
            script("LOCK_BATCH").unwrap(),
            "4",
            "a",
            "b",
            "c",
            "d",
        ];
        let of_each = [owner, lease, "2", owner, lease, owner, lease, owner, lease];
        server.cli(&[&words[..], &of_each].concat()).await;
    }
    for key in ["a", "b", "c", "d"] {
        let left = server.pttl(key).await;
        assert!((30_001..=60_000).contains(&left), "{key}: {left}");
    }
}
