//! One acquisition and its release.

use std::sync::atomic::Ordering;
use std::time::Duration;

use distlock_chaos::history::{End, EventKind, Id, Refusal};
use distlock_interop::{Actor, Call, Failure, Grant, Kind};
use distlock_tests::pulse::monotonic_nanos;
use rand::RngExt as _;
use tokio::time::sleep;

use super::{KEYS, LEASE, NANOS, Run, SHORTEST_WAIT, WAIT, lock, recorded_wait, refusal};

impl Run {
    /// Acquires and releases.
    pub(super) async fn hold(&self, id: Id, actor: &Actor) -> Result<(), Failure> {
        let Draw {
            key,
            wait,
            hold,
            is_leased,
        } = Draw::new();
        let kind = match self.kind {
            Kind::Write if !id.number.is_multiple_of(3) => Kind::Read,
            kind => kind,
        };
        let lock = lock(kind, key);
        let mut call = Call::new("acquire", lock.0, &lock.1).wait(wait);
        // Redisson 3.16.8 never gets a multi-lock with a lease and without a wait: see the guide.
        let takes_lease = match kind {
            Kind::Semaphore | Kind::Red => false,
            Kind::Multi => wait > 0,
            _ => true,
        };
        let has_lease = kind == Kind::Permit || (is_leased && takes_lease);
        call.lease = has_lease.then_some(LEASE);
        let called = monotonic_nanos();
        self.add(
            called,
            EventKind::Called {
                id,
                key: lock.1[0].clone(),
                other_key: None,
                wait: Some(recorded_wait(wait)),
                lease: call.lease.map(|lease| lease * NANOS),
                shared: kind == Kind::Read,
                leased: kind != Kind::Semaphore,
            },
        );
        let answer = actor.call(call).answer().await;
        let now = monotonic_nanos();
        let answer = match answer {
            Ok(answer) => answer,
            Err(Failure::Ended) => return Err(Failure::Ended),
            Err(failure) => {
                let why = refusal(failure.to_string());
                self.add(now, EventKind::Refused { id, why });
                return Ok(());
            }
        };
        let grant: Option<Grant> = serde_json::from_value(answer.value).expect("a grant");
        let Some(grant) = grant else {
            let why = Refusal::Busy;
            self.add(answer.ended, EventKind::Refused { id, why });
            return Ok(());
        };
        self.granted.fetch_add(1, Ordering::Relaxed);
        // The lease began with the call that was granted, or later.
        let deadline = answer.ended + LEASE * NANOS;
        let deadline = if has_lease {
            called + LEASE * NANOS
        } else {
            deadline
        };
        // An owner of a thread is used again and again. The hold is of this operation alone.
        let owner = format!("{} {id}", grant.owner);
        let token = grant.token;
        self.add(
            answer.ended,
            EventKind::Granted {
                id,
                owner,
                deadline,
                token,
            },
        );
        sleep(Duration::from_millis(hold)).await;
        let ending = monotonic_nanos();
        let deadline = if has_lease {
            deadline
        } else {
            ending + LEASE * NANOS
        };
        self.add(ending, EventKind::Ending { id, deadline });
        let how = match actor.give_back(&lock, grant.permit).answer().await {
            Ok(_) => End::Released,
            Err(Failure::Ended) => return Err(Failure::Ended),
            Err(failure) => End::Other(failure.to_string()),
        };
        self.add(monotonic_nanos(), EventKind::Ended { id, how });
        Ok(())
    }
}

/// What is random in an operation.
struct Draw {
    key: usize,
    /// Zero is a single attempt.
    wait: u64,
    hold: u64,
    is_leased: bool,
}

impl Draw {
    fn new() -> Self {
        let mut random = rand::rng();
        let is_single = random.random_bool(0.2);
        Self {
            key: random.random_range(0..KEYS),
            wait: if is_single {
                0
            } else {
                random.random_range(SHORTEST_WAIT..WAIT)
            },
            hold: random.random_range(0..10),
            is_leased: random.random_bool(0.2),
        }
    }
}
