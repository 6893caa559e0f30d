//! What a guard may still do after its scope or the guard itself has ended.

use std::panic::Location;

use uuid::Uuid;

use super::*;
use crate::backend::Attempt;
use crate::clock::Clock;
use crate::resource::identity::Identity;
use crate::resource::key::Key;
use crate::resource::kind::Kind;

const LEASE: Duration = Duration::from_secs(30);

/// The first guard of a hold that was granted just now.
fn granted() -> Arc<HoldRef> {
    let resource = Resource {
        kind: Kind::Reentrant,
        key: Key::new("", "order:42").unwrap(),
    };
    let target = Target::of(&resource, Owner::new(Uuid::nil(), 1));
    let client = GuardClient {
        identity: Identity::of(Uuid::nil()),
        clock: Clock::tokio(),
    };
    let client = Arc::new(client);
    let grant = Grant {
        client: &client,
        attempt: &Attempt::new(target, LEASE),
        settings: &HoldSettings {
            lease: None,
            max_hold: None,
            margin: Duration::ZERO,
            call_site: Location::caller(),
        },
        token: None,
        margin: Duration::ZERO,
        sent: client.clock.now(),
        now: client.clock.now(),
        watchdog: LEASE,
        in_doubt: None,
        epoch: 0,
        meter: Meter::none(),
        is_of_quorum: false,
    };
    HoldRef::granted(grant)
}

fn nested(beside: &HoldRef, closed: &AtomicBool) -> Result<Arc<HoldRef>, NestError> {
    beside.nest(closed, Term::Kept, Duration::ZERO)
}

#[tokio::test(start_paused = true)]
async fn nothing_nests_in_a_closed_scope_or_beside_a_guard_that_has_ended() {
    let open = AtomicBool::new(false);
    let closed = AtomicBool::new(false);
    let guard = granted();
    let other = nested(&guard, &closed).unwrap();
    guard.hold().close(&closed);
    // The scope has ended, and its guard lives on.
    assert_eq!(nested(&guard, &closed).unwrap_err(), NestError::Closed);
    assert_eq!(guard.let_in(&closed), Err(NestError::Closed));
    // The guard has ended, and the hold lives on.
    assert_eq!(guard.leave(guard.now()), GuardEnd::Shared);
    assert_eq!(nested(&guard, &open).unwrap_err(), NestError::Closed);
    assert_eq!(guard.let_in(&open), Err(NestError::Closed));
    assert!(nested(&other, &open).is_ok() && other.hold().count() == 2);
}

#[tokio::test(start_paused = true)]
async fn hold_counts_from_its_grant() {
    let guard = granted();
    tokio::time::sleep(LEASE / 2).await;
    let latest = guard.hold().latest_guard();
    assert_eq!(latest.held_for(guard.now()), LEASE / 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_nests_in_a_hold_that_was_lost() {
    let open = AtomicBool::new(false);
    let guard = granted();
    tokio::time::sleep(LEASE).await;
    let lost = NestError::Lost(Loss::Expired);
    assert_eq!(nested(&guard, &open).unwrap_err(), lost);
    assert_eq!(guard.let_in(&open), Err(lost));
}

#[tokio::test(start_paused = true)]
async fn renewal_that_is_confirmed_after_a_guard_found_the_loss_lengthens_nothing() {
    let guard = granted();
    let end = guard.now().after(LEASE);
    let lost = GuardEnd::Lost {
        loss: Loss::Expired,
        last: true,
    };
    assert_eq!(guard.leave(end), lost);
    let (confirmed, _) = guard.hold().renewed(end, 1, LEASE, Answer::Renewed, end);
    assert_eq!(confirmed, Confirmed::AsBefore);
    assert_eq!(guard.hold().lease(Lease::server_end), end);
}
