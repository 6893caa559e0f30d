use super::*;

#[test]
fn response_timeout_leaves_room_for_several_tries_in_a_lease() {
    let config = Config {
        watchdog_timeout: Duration::from_millis(600),
        ..Config::default()
    };
    let config = config.validated().unwrap();
    assert_eq!(config.response_timeout, Duration::from_millis(100));
}

#[test]
fn setting_out_of_range_is_refused_with_its_name_its_value_and_its_range() {
    fn set(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        config.validated().unwrap_err().to_string()
    }
    let zero = Duration::ZERO;
    let year = Duration::from_secs(366 * 24 * 3600);
    let long = Duration::new(3650 * 24 * 3600, 1_000_000);
    for (text, expected) in [
        (
            set(|config| config.watchdog_timeout = long),
            "watchdog_timeout = 3650days 1ms: expected 1ms to 3650days",
        ),
        (
            set(|config| config.watchdog_timeout = Duration::from_nanos(999_999)),
            "watchdog_timeout = 999us 999ns: expected 1ms to 3650days",
        ),
        (
            set(|config| config.lease_margin = Duration::from_secs(11)),
            "lease_margin = 11s: expected at most 10s, a third of `watchdog_timeout`",
        ),
        (
            set(|config| config.default_wait = Some(year)),
            "default_wait = 366days: expected at most 365days, or `unlimited` (`Duration::MAX` in code) for no limit",
        ),
        (
            set(|config| config.max_hold = Some(zero)),
            "max_hold = 0s: expected 1ms to 3650days, or `unlimited` (`Duration::MAX` in code) for no limit",
        ),
        (
            set(|config| config.response_timeout = zero),
            "response_timeout = 0s: expected more than 0, at most 365days",
        ),
        (
            set(|config| config.waiter_timeout = Duration::MAX),
            "waiter_timeout = more than 36500days: expected more than 0, at most 365days",
        ),
        (
            set(|config| config.warn_after = zero),
            "warn_after = 0s: expected more than 0, or `unlimited` (`Duration::MAX` in code) for no warning",
        ),
        (
            set(|config| config.name = ClientName::new("a b".into())),
            "name = \"a b\": expected 1 to 128 visible ASCII characters without blanks",
        ),
        #[cfg(feature = "redis")]
        (
            set(|config| config.restart_grace = year),
            "restart_grace = 366days: expected at most 365days",
        ),
        #[cfg(feature = "redis")]
        (
            set(|config| {
                config.confirmation = Some(Confirmation {
                    replicas: Replicas::Count(1),
                    timeout: zero,
                    on_disk: false,
                })
            }),
            "replicas_timeout = 0s: expected 1ms to 365days",
        ),
        #[cfg(feature = "redis")]
        (
            set(|config| {
                config.confirmation = Some(Confirmation {
                    replicas: Replicas::Count(0),
                    timeout: year,
                    on_disk: false,
                })
            }),
            "replicas = 0: expected 1 or more",
        ),
    ] {
        assert_eq!(text, format!("invalid setting {expected}"));
    }
}

#[test]
fn longest_duration_is_no_limit_for_waits_and_limits() {
    assert_eq!(checked_wait(Some(Duration::MAX)).unwrap(), None);
    assert_eq!(checked_max_hold(Some(Duration::MAX)).unwrap(), None);
    let config = Config {
        default_wait: Some(Duration::MAX),
        max_hold: Some(Duration::MAX),
        response_timeout: Duration::MAX,
        unavailable_after: Duration::MAX,
        #[cfg(feature = "redis")]
        fencing_token_ttl: Some(Duration::MAX),
        ..Config::default()
    };
    let config = config.validated().unwrap();
    assert_eq!(checked_wait(config.default_wait).unwrap(), None);
    assert_eq!(config.max_hold, None);
    assert_eq!(config.unavailable_after, MAX_WAIT);
    assert_eq!(
        config.response_timeout,
        WATCHDOG_TIMEOUT / RESPONSE_TIMEOUTS_PER_LEASE
    );
    #[cfg(feature = "redis")]
    assert_eq!(config.fencing_token_ttl, None);
}
