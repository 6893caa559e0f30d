//! A multi-lock of hot keys gets its share, and costs the others little.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Acquire, Client};
use distlock_tests::size;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::conformance::stage::Stage;

/// How many tasks want each of the two keys alone.
const SINGLES: u64 = 16;

/// What was granted while it lasted: to the tasks on `a`, to those on `b`, and to the one on both.
#[derive(Debug, Default)]
struct Grants {
    a: u64,
    b: u64,
    both: u64,
}

impl Grants {
    fn add(&mut self, other: &Self) {
        self.a += other.a;
        self.b += other.b;
        self.both += other.both;
    }
}

/// Enters again and again, until `stop` is set.
fn spin(
    tasks: &mut JoinSet<()>,
    stop: &Arc<AtomicBool>,
    acquire: Acquire,
    section: Duration,
    count: &Arc<AtomicU64>,
) {
    let (stop, count) = (Arc::clone(stop), Arc::clone(count));
    tasks.spawn(async move {
        while !stop.load(Ordering::Relaxed) {
            acquire.clone().run(sleep(section)).await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Has the tasks run for this long, with sections of these lengths.
async fn play(client: &Client, with_both: bool, sections: [Duration; 2], time: Duration) -> Grants {
    let stop = Arc::new(AtomicBool::new(false));
    let counts: [Arc<AtomicU64>; 3] = Default::default();
    let mut tasks = JoinSet::new();
    for _ in 0..SINGLES {
        for (at, key) in ["a", "b"].into_iter().enumerate() {
            let acquire = client.lock(key).acquire();
            spin(&mut tasks, &stop, acquire, sections[at], &counts[at]);
        }
    }
    if with_both {
        let (acquire, shortest) = (client.multi_lock(["a", "b"]).acquire(), sections[0]);
        spin(&mut tasks, &stop, acquire, shortest, &counts[2]);
    }
    sleep(time).await;
    let [a, b, both] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    Grants { a, b, both }
}

async fn one_that_needs_two_hot_keys_gets_its_share(stage: &Stage) {
    let client = stage.client().await;
    let ms = Duration::from_millis;
    let lengths = if stage.is_paused() {
        size(
            vec![[1, 1], [1, 4], [1_000, 1_000]],
            vec![[1, 1], [1, 4], [1, 10], [5, 100], [1_000, 1_000]],
        )
    } else {
        vec![[1, 1]]
    };
    for [a, b] in lengths {
        let sections = [ms(a), ms(b)];
        // By turns in real time, and once more if need be: what else the machine does slows both down then.
        let (time, turns, attempts) = if stage.is_paused() {
            (ms(b) * 16 * size(4, 50), 1, 1)
        } else {
            (ms(500), size(2, 6), 3)
        };
        let mut told = Vec::new();
        let is_fair = async || {
            let (mut alone, mut beside) = (Grants::default(), Grants::default());
            for _ in 0..turns {
                alone.add(&play(&client, false, sections, time).await);
                beside.add(&play(&client, true, sections, time).await);
            }
            told.push(format!(
                "sections of {a} and {b} ms: {alone:?}, then {beside:?}"
            ));
            // In real time less is asked, because a busy machine may stop any of the tasks at any time.
            let (share, rest) = if stage.is_paused() { (2, 3) } else { (8, 2) };
            beside.both * share >= beside.b / SINGLES
                && beside.a * 4 >= alone.a * rest
                && beside.b * 4 >= alone.b * rest
        };
        let is_fair = once_of(attempts, is_fair).await;
        println!("{told:?}");
        assert!(is_fair, "{told:?}");
    }
}

/// Whether a measurement has this outcome once, in so many attempts.
async fn once_of(attempts: u32, mut measure: impl AsyncFnMut() -> bool) -> bool {
    for _ in 0..attempts {
        if measure().await {
            return true;
        }
    }
    false
}

async fn one_that_waits_for_a_key_that_is_held_for_long_is_in_nobodys_way(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let ms = Duration::from_millis;
    for holder in [&client, &other] {
        let section = [ms(1); 2];
        // By turns in real time, and once more if need be, as above.
        let (time, turns, attempts, rest) = if stage.is_paused() {
            (ms(size(120, 2_000)), 1, 1, 3)
        } else {
            (ms(500), size(2, 4), 3, 2)
        };
        let mut told = Vec::new();
        let is_fair = async || {
            let (mut alone, mut beside) = (Grants::default(), Grants::default());
            for _ in 0..turns {
                alone.add(&play(&client, false, section, time).await);
                let held = holder.lock("c").acquire().await.unwrap();
                let waiting =
                    tokio::spawn(client.multi_lock(["a", "b", "c"]).acquire().into_future());
                beside.add(&play(&client, false, section, time).await);
                assert!(!waiting.is_finished());
                held.release().await.unwrap();
                waiting.await.unwrap().unwrap().release().await.unwrap();
            }
            told.push(format!("{alone:?}, then {beside:?}"));
            beside.a * 4 >= alone.a * rest && beside.b * 4 >= alone.b * rest
        };
        let is_fair = once_of(attempts, is_fair).await;
        assert!(is_fair, "{told:?}");
    }
}

async fn crowd_of_multi_locks_with_common_keys_gets_on(stage: &Stage) {
    let client = stage.client().await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let subsets = [["a", "b"], ["b", "c"], ["c", "a"], ["c", "b"], ["a", "c"]];
    let counts: [Arc<AtomicU64>; 5] = Default::default();
    for (count, keys) in counts.iter().zip(subsets) {
        let section = Duration::from_millis(1);
        spin(
            &mut tasks,
            &stop,
            client.multi_lock(keys).acquire(),
            section,
            count,
        );
        spin(
            &mut tasks,
            &stop,
            client.lock(keys[0]).acquire(),
            section,
            &Arc::default(),
        );
    }
    let all_got_on = async || {
        counts
            .iter()
            .all(|count| count.load(Ordering::Relaxed) >= 20)
    };
    stage
        .eventually("20 grants each", stage.lease(), all_got_on)
        .await;
    stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
}

/// Sections that are as long as a few ticks of the timer, so that both keys are handed over in step with each other.
async fn one_that_needs_two_keys_that_change_hands_in_step_gets_them(stage: &Stage) {
    let ms = Duration::from_millis;
    for section in [1, 2, 3, 5, 8] {
        let client = stage.client().await;
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for (key, offset) in [("a", 0), ("a", 0), ("b", section / 2), ("b", section / 2)] {
            sleep(ms(offset)).await;
            let acquire = client.lock(key).acquire();
            spin(&mut tasks, &stop, acquire, ms(section), &Arc::default());
        }
        // In real time nothing is judged by the clock of a busy machine.
        let wait = if stage.is_paused() {
            ms(section) * 200
        } else {
            Duration::from_secs(30)
        };
        for _ in 0..10 {
            let both = client.multi_lock(["a", "b"]).acquire().wait(wait);
            both.run(sleep(ms(section))).await.unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        tasks.join_all().await;
    }
}

in_one_slot! {
    one_that_needs_two_hot_keys_gets_its_share,
}

on_every_backend_and_in_several_slots![
    one_that_needs_two_hot_keys_gets_its_share,
    one_that_waits_for_a_key_that_is_held_for_long_is_in_nobodys_way,
    crowd_of_multi_locks_with_common_keys_gets_on,
    one_that_needs_two_keys_that_change_hands_in_step_gets_them,
];
