use super::*;

fn timeout(blocker: Blocker) -> Error {
    Error::Timeout {
        key: "order:42".into(),
        waited: Duration::from_secs(5),
        blocker,
        holder: None,
    }
}

#[test]
fn messages_have_the_key_the_numbers_and_the_way_out() {
    let ttl = Some(Duration::from_micros(12_300_700));
    assert_eq!(
        timeout(Blocker::Owner(ttl)).to_string(),
        r#"timed out after 5s waiting for "order:42": its lease has 12s 300ms left unless renewed"#
    );
    let held = |waited, others| Error::Timeout {
        key: "order:42".into(),
        waited,
        blocker: Blocker::Owner(ttl),
        holder: Some(Box::new(HeldBy::new("90ab:7".into(), others))),
    };
    assert_eq!(
        held(Duration::ZERO, 0).to_string(),
        r#""order:42" is held: its lease has 12s 300ms left unless renewed; held by owner 90ab:7"#
    );
    assert!(
        held(Duration::from_secs(1), 2)
            .to_string()
            .ends_with("; held by owner 90ab:7 and 2 more")
    );
    let lost = Error::lost("order:42", Loss::Expired).after_body();
    assert_eq!(
        lost.to_string(),
        r#"lost "order:42": its lease ended before it was released; the body had completed"#
    );
    let permits = Error::InvalidPermits {
        permits: -3,
        min: 0,
        max: 2_147_483_647,
    };
    assert_eq!(
        permits.to_string(),
        "invalid number of permits -3: expected 0 to 2147483647"
    );
}

#[test]
fn close_that_was_too_short_says_what_is_left_and_what_to_do() {
    let pending = |holds, releases| Error::ReleasesPending {
        holds,
        releases,
        after: Duration::from_secs(5),
    };
    let guards = "guards that hold something: 2 (named in the log; end them before `close`, or give it more time)";
    let releases = "releases without the server's confirmation: 3 (repeated while the program runs; otherwise their leases end)";
    let start = "the client is closed, and after 5s there are still ";
    assert_eq!(pending(2, 0).to_string(), format!("{start}{guards}"));
    assert_eq!(pending(0, 3).to_string(), format!("{start}{releases}"));
    assert_eq!(
        pending(2, 3).to_string(),
        format!("{start}{guards}, and {releases}")
    );
}

#[test]
fn error_that_a_program_ends_with_is_shown_with_its_variant_and_its_text() {
    let pending = Error::ReleasesPending {
        holds: 1,
        releases: 0,
        after: Duration::from_secs(5),
    };
    assert_eq!(
        format!("{pending:?}"),
        format!("ReleasesPending: {pending}")
    );
    let boxed: Box<dyn std::error::Error> = Box::new(pending.clone());
    assert_eq!(format!("{boxed:?}"), format!("ReleasesPending: {pending}"));
    assert_eq!(
        format!("{:?}", Error::NoKeys),
        format!("NoKeys: {}", Error::NoKeys)
    );
}

#[test]
fn each_error_answers_to_one_predicate() {
    let cause: Cause = Arc::new(std::io::Error::other("down"));
    let key = String::from("k");
    let all = [
        timeout(Blocker::Sibling),
        Error::lost("k", Loss::Gone),
        Error::Unavailable {
            key: key.clone(),
            after: Duration::ZERO,
            cause: cause.clone(),
        },
        Error::ReleasesPending {
            holds: 1,
            releases: 3,
            after: Duration::ZERO,
        },
        Error::Denied {
            key: key.clone(),
            cause: cause.clone(),
        },
        Error::LoginDenied {
            server: key.clone(),
            cause,
        },
        Error::Overloaded { key, waiters: 7 },
        Error::NoClient,
        Error::InvalidLease {
            lease: Duration::ZERO,
            margin: Duration::ZERO,
        },
    ];
    for error in all {
        let yes = [
            error.is_busy(),
            error.is_overloaded(),
            error.is_unavailable(),
            error.is_lost(),
            error.is_permanent(),
        ];
        assert_eq!(yes.iter().filter(|yes| **yes).count(), 1, "{error}");
    }
}

#[test]
fn long_keys_are_cut_in_messages() {
    let error = Error::invalid_key(&"é".repeat(100), "it is long").to_string();
    assert!(error.len() < 200, "{error}");
}
