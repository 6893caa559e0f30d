use super::*;
use crate::backend::{Fault, cause};
use crate::resource::key::Key;

#[test]
fn each_constructor_makes_the_error_of_its_name() {
    let time = Duration::new(1, 999_998_286);
    for (name, error) in made(time) {
        assert_eq!(error.variant(), name);
    }
}

/// An error of each kind.
fn made(time: Duration) -> [(&'static str, Error); 27] {
    let key = "order:42";
    [
        ("Timeout", timeout(key, time, Blocker::Queue(None))),
        ("Lost", lost(key, Loss::Gone)),
        ("Unavailable", unavailable(key, time, "away")),
        ("Unreachable", unreachable("host", time, "away")),
        ("TimePaused", time_paused("host")),
        ("ReleasesPending", releases_pending(1, 3, time)),
        ("Denied", denied(key, std::io::Error::other("NOPERM"))),
        ("LoginDenied", login_denied("host", "WRONGPASS")),
        ("UnsupportedServer", unsupported_server("host", "too old")),
        ("WrongType", wrong_type(key)),
        ("Protocol", protocol(key, "odd")),
        ("Overloaded", overloaded(key, 7)),
        ("Unsupported", unsupported(key, "not here")),
        ("NoKeys", Error::NoKeys),
        ("Deadlock", deadlock(key, "inside itself")),
        ("InvalidKey", invalid_key(key, "bad")),
        ("InvalidLease", invalid_lease(time, Duration::ZERO)),
        ("InvalidWait", invalid_wait(time)),
        ("InvalidPermits", invalid_permits(0, 1, 3)),
        ("InvalidPermitId", invalid_permit_id("42")),
        ("InvalidOwner", invalid_owner("42")),
        ("InvalidDetachedHold", invalid_detached_hold("42")),
        ("InvalidCount", invalid_count(0)),
        (
            "InvalidConfig",
            invalid_config("page_size", "0", "1 to 10000"),
        ),
        ("InvalidUrl", invalid_url("no host")),
        ("NoClient", Error::NoClient),
        ("Closed", closed(key)),
    ]
}

#[test]
fn text_of_no_error_has_a_debug_form_a_time_to_the_nanosecond_or_a_prefix_twice() {
    let down = Fault::NotNow(cause("not executed: server a: not executed: no answer"));
    let time = Duration::new(1, 999_998_286);
    let key = Key::new("", "order:42").unwrap();
    let blockers = [
        Blocker::Owner(Some(time)),
        Blocker::Owner(None),
        Blocker::Queue(Some(time)),
        Blocker::Sibling,
        Blocker::PermitsNotSet,
        Blocker::Count(3),
        Blocker::Unanswered,
    ];
    let timeouts = blockers.map(|blocker| timeout("order:42", time, blocker));
    let errors = made(time).into_iter().map(|(_, error)| error);
    let faulty = [down.clone().into_error(&key, time)];
    let texts = errors.chain(timeouts).chain(faulty);
    for error in texts {
        let text = error.to_string();
        for odd in ["Some(", "1.9", "secs:", "{", "not executed: "] {
            assert!(!text.contains(odd), "{odd:?} in {text}");
        }
        // A time that was refused is told as it was given.
        let is_refused = matches!(
            error,
            Error::InvalidLease { .. } | Error::InvalidWait { .. }
        );
        assert!(is_refused || !text.contains("286ns"), "{text}");
        assert!(text.len() < 320, "{} characters: {text}", text.len());
    }
    assert_eq!(down.to_string(), "not executed: server a: no answer");
}

#[test]
fn made_error_reads_like_a_real_one() {
    assert_eq!(
        unavailable("order:42", Duration::from_secs(5), "connection refused").to_string(),
        r#"lock server unavailable, asked for "order:42" for 5s: connection refused"#
    );
}
