//! Time that passes in memory and on a Redis server alike: leases end in the middle of a sequence.
//!
//! Memory has a runtime of its own, whose time is stopped. On the server all ends are moved to an earlier time. The time that the steps take
//! passes on both. No lease ends near a step, so a slow machine makes no difference. Read/write locks are left out: each side removes readers
//! that have ended when it meets them, and refusals count the others.

use std::cell::Cell;
use std::time::{Duration, Instant};

use distlock::test_util::Kind;
use distlock_tests::{RedisServer, size};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseResult, TestRunner};
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Builder, Runtime};

use super::agree::{self, Event, Step};
use super::side::{DataLoss, Side};

/// Moves the end of each key, and of each member of a sorted set, to an earlier time. What has ended by then is removed.
const PASS: &str = r"
local by = tonumber(ARGV[1])
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('TYPE', key).ok == 'zset' then
    local members = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for at = 1, #members, 2 do redis.call('ZINCRBY', key, -by, members[at]) end
  end
  local left = redis.call('PTTL', key)
  if left >= 0 and left <= by then redis.call('DEL', key) end
  if left > by then redis.call('PEXPIRE', key, left - by) end
end";

/// Far from the times of all steps, which are at multiples of 400 s.
pub(super) fn leases() -> impl Strategy<Value = Duration> + Clone {
    (0..6_u64).prop_map(|n| Duration::from_secs(n * 400 + 100))
}

/// One pause for so many steps.
pub(super) fn with_pauses<S: Step>(
    step: impl Strategy<Value = S>,
    steps: u32,
) -> impl Strategy<Value = Event<S>> {
    let pause = (1..4_u64).prop_map(|n| Event::Pause(Duration::from_secs(n * 400)));
    prop_oneof![steps => step.prop_map(Event::Step), 1 => pause]
}

/// Tests that memory agrees with one server while time passes.
macro_rules! agree_while_time_passes {
    ($test:ident, $kind:expr, $step:expr, $full:expr) => {
        #[test]
        fn $test() {
            use $crate::differential::passing;
            passing::agree($kind, passing::with_pauses($step, 8), $full);
        }
    };
}
pub(super) use agree_while_time_passes;

/// Both sides, each with the runtime that its time is of.
struct Sides {
    stopped: Runtime,
    memory: Side,
    real: Runtime,
    redis: Side,
    connection: MultiplexedConnection,
}

impl Sides {
    fn start(kind: Kind, server: &RedisServer, real: Runtime) -> Self {
        let mut stopped = Builder::new_current_thread();
        let stopped = stopped.enable_all().start_paused(true).build().unwrap();
        let memory = {
            let _inside = stopped.enter();
            Side::memory(kind, "")
        };
        let redis = real.block_on(Side::redis(&server.url(), &[server], kind, ""));
        let connection = real.block_on(server.connection());
        Self {
            stopped,
            memory,
            real,
            redis,
            connection,
        }
    }

    fn lose(&self, loss: DataLoss, round: u64) {
        self.stopped.block_on(self.memory.lose(loss, round));
        self.real.block_on(self.redis.lose(loss, round));
    }

    fn pass(&self, time: Duration) {
        self.stopped.block_on(tokio::time::advance(time));
        let mut pass = redis::cmd("EVAL");
        pass.arg(PASS).arg(0).arg(time.as_millis() as u64);
        let mut connection = self.connection.clone();
        let passed = self.real.block_on(pass.exec_async(&mut connection));
        passed.unwrap();
    }

    fn compare<S: Step>(&self, round: u64, events: &[Event<S>]) -> TestCaseResult {
        self.lose(DataLoss::AllLost, 0);
        let (first, second) = (&self.memory.verbs, &self.redis.verbs);
        let (first, second) = (first.in_round(round), second.in_round(round));
        let mut last = Instant::now();
        for (at, event) in events.iter().enumerate() {
            match event {
                Event::Step(step) => {
                    let now = Instant::now();
                    self.stopped.block_on(tokio::time::advance(now - last));
                    last = now;
                    let one = self.stopped.block_on(step.take(&first));
                    let two = self.real.block_on(step.take(&second));
                    agree::same_answers(
                        (at, step),
                        (&one, &two),
                        (&first, &second),
                        agree::TOLERANCE,
                    )?;
                }
                Event::Pause(time) => self.pass(*time),
                Event::Loses(loss) => self.lose(*loss, round),
            }
        }
        Ok(())
    }
}

/// Drives memory and a Redis server with so many sequences of up to so many events, and lets time pass.
pub(super) fn agree<S: Step>(
    kind: Kind,
    event: impl Strategy<Value = Event<S>>,
    full: (u32, usize),
) {
    let real = Builder::new_current_thread().enable_all().build().unwrap();
    let server = real.block_on(RedisServer::start());
    let sides = Sides::start(kind, &server, real);
    let (cases, length) = size((20, 80), full);
    let seed = agree::seed();
    let mut runner = TestRunner::new(ProptestConfig {
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    });
    let events = prop::collection::vec(event, 1..length);
    let rounds = Cell::new(0);
    let agreed = runner.run(&events, |events| {
        rounds.set(rounds.get() + 1);
        sides.compare(rounds.get(), &events)
    });
    agreed.unwrap_or_else(|error| panic!("SEED={seed}: {error}"));
}
