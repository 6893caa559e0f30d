//! The read and the write lock on one key, with a plain lock in their way now and then.

use std::time::Duration;

use distlock::test_util::{Answer, Kind, Verbs};
use distlock::{Client, Error};
use futures_util::future::join_all;
use proptest::prelude::*;
use uuid::Uuid;

use super::agree::{self, Event, Step};
use super::lock::seen;
use super::side::{self, KEYS};

/// Attempts inside this writer's hold; it is one of the owners.
const AROUND: u64 = 1;

/// Owners of plain locks: no owner has holds of two kinds.
const PLAIN: u64 = 20;

/// How long the readers have their turn.
const READERS_TURN: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
enum Act {
    Read {
        owner: u64,
        lease: Duration,
        inside: bool,
    },
    Write {
        owner: u64,
        lease: Duration,
        waits: bool,
    },
    Renew(Vec<(usize, bool, u64, u32, Duration)>),
    Release {
        write: bool,
        owner: u64,
        withdraws: bool,
    },
    /// Of several readers at once. Over a server most of them travel together.
    ReadAll(Vec<(u64, Duration)>),
    ReleaseAll(Vec<u64>),
    ForceRelease {
        write: bool,
    },
    /// One reader, one writer, and so many that were not named, were seen.
    ForceReleaseSeen {
        reader: u64,
        writer: u64,
        unnamed: u64,
    },
    Inspect {
        write: bool,
    },
    Plain {
        owner: u64,
        lease: Duration,
    },
    PlainRelease {
        owner: u64,
    },
    PlainInspect,
}

#[derive(Clone, Debug)]
struct RwStep {
    key: usize,
    act: Act,
}

/// Readers and writers, each a few.
fn act(lease: impl Strategy<Value = Duration> + Clone + 'static) -> impl Strategy<Value = Act> {
    let owner = 1..5_u64;
    let renewal = (
        0..KEYS.len(),
        any::<bool>(),
        owner.clone(),
        1..4_u32,
        lease.clone(),
    );
    let owners = || proptest::sample::subsequence((1..9_u64).collect::<Vec<_>>(), 2..8);
    let leases = prop::collection::vec(lease.clone(), 8);
    prop_oneof![
        3 => (owners(), leases).prop_map(|(owners, leases)| {
            Act::ReadAll(owners.into_iter().zip(leases).collect())
        }),
        3 => owners().prop_map(Act::ReleaseAll),
        6 => (owner.clone(), lease.clone(), any::<bool>())
            .prop_map(|(owner, lease, inside)| Act::Read { owner, lease, inside }),
        4 => (owner.clone(), lease.clone(), any::<bool>())
            .prop_map(|(owner, lease, waits)| Act::Write { owner, lease, waits }),
        4 => prop::collection::vec(renewal, 1..5).prop_map(Act::Renew),
        5 => (any::<bool>(), owner.clone(), any::<bool>())
            .prop_map(|(write, owner, withdraws)| Act::Release { write, owner, withdraws }),
        1 => any::<bool>().prop_map(|write| Act::ForceRelease { write }),
        2 => (1..4_u64, 1..4_u64, 0..2_u64).prop_map(|(reader, writer, unnamed)| {
            Act::ForceReleaseSeen { reader, writer, unnamed }
        }),
        4 => any::<bool>().prop_map(|write| Act::Inspect { write }),
        1 => (owner.clone(), lease).prop_map(|(owner, lease)| Act::Plain { owner, lease }),
        2 => owner.prop_map(|owner| Act::PlainRelease { owner }),
        1 => Just(Act::PlainInspect),
    ]
}

fn step(lease: impl Strategy<Value = Duration> + Clone + 'static) -> impl Strategy<Value = RwStep> {
    (0..KEYS.len(), act(lease)).prop_map(|(key, act)| RwStep { key, act })
}

fn kind(write: bool) -> Kind {
    if write { Kind::Write } else { Kind::Read }
}

impl Act {
    async fn carry_out(&self, verbs: &Verbs, key: &str) -> Answer {
        let of = |write: bool| verbs.of_kind(kind(write));
        let plain = verbs.of_kind(Kind::Reentrant);
        let answer = match self {
            Self::Read {
                owner,
                lease,
                inside: true,
            } => of(false).inside(AROUND).attempt(key, *owner, *lease).await,
            Self::Read { owner, lease, .. } => of(false).attempt(key, *owner, *lease).await,
            Self::Write {
                owner,
                lease,
                waits: true,
            } => {
                // A place of minutes where leases are minutes; and none that ends with a step.
                let place = *lease / 2;
                let writes = of(true).waiting(place);
                loop {
                    let answer = writes.attempt(key, *owner, *lease).await;
                    match answer {
                        // The readers' turn ends by itself, and so at another time on each side. Its end is told, and
                        // then the writer gets as far on both.
                        Ok(Answer::Held(Some(left))) if left <= READERS_TURN => {
                            tokio::time::sleep(left + Duration::from_millis(1)).await;
                        }
                        answer => break answer,
                    }
                }
            }
            Self::Write { owner, lease, .. } => of(true).attempt(key, *owner, *lease).await,
            Self::Release {
                write,
                owner,
                withdraws: true,
            } => of(*write).withdraw(key, *owner).await,
            Self::Release { write, owner, .. } => of(*write).release(key, *owner).await,
            Self::ReadAll(readers) => {
                let reads = of(false);
                let attempts = readers
                    .iter()
                    .map(|(owner, lease)| reads.attempt(key, *owner, *lease));
                each(join_all(attempts).await)
            }
            Self::ReleaseAll(owners) => {
                let reads = of(false);
                let releases = owners.iter().map(|owner| reads.release(key, *owner));
                each(join_all(releases).await)
            }
            Self::ForceRelease { write } => of(*write).force_release(key).await,
            Self::ForceReleaseSeen {
                reader,
                writer,
                unnamed,
            } => {
                let owners = [side::owner(*reader), side::owner(*writer) + ":write"];
                let mut seen = seen(owners, None);
                seen.unnamed = *unnamed;
                of(true).force_release_seen(key, &seen).await
            }
            Self::Inspect { write } => of(*write).inspect(key).await,
            Self::Plain { owner, lease } => plain.attempt(key, PLAIN + owner, *lease).await,
            Self::PlainRelease { owner } => plain.release(key, PLAIN + owner).await,
            Self::PlainInspect => plain.inspect(key).await,
            Self::Renew(_) => unreachable!("not on one key"),
        };
        agree::or_wrong_type(answer)
    }
}

fn each(answers: Vec<Result<Answer, Error>>) -> Result<Answer, Error> {
    Ok(Answer::Each(
        answers.into_iter().map(agree::or_wrong_type).collect(),
    ))
}

/// Renewals of one family go together, whatever their kinds: one batch for each kind, and their answers in a row.
async fn renew(verbs: &Verbs, batch: &[(usize, bool, u64, u32, Duration)]) -> Answer {
    let mut answers = Vec::new();
    for write in [false, true] {
        let of_kind = batch.iter().filter(|renewal| renewal.1 == write);
        let batch: Vec<_> = of_kind
            .map(|(key, _, owner, count, lease)| (KEYS[*key], *owner, *count, *lease))
            .collect();
        match verbs.of_kind(kind(write)).renew(&batch).await.unwrap() {
            Answer::Renewed(ours) => answers.extend(ours),
            other => return other,
        }
    }
    Answer::Renewed(answers)
}

impl Step for RwStep {
    async fn take(&self, verbs: &Verbs) -> Answer {
        match &self.act {
            Act::Renew(batch) => renew(verbs, batch).await,
            act => act.carry_out(verbs, KEYS[self.key]).await,
        }
    }
}

agree::agree_on_all_servers!(
    Kind::Read,
    "",
    step(agree::long_leases()).prop_map(Event::Step),
    (100, 200)
);

agree::agrees_with_itself!(Kind::Read, with_pauses(step, 8), (300, 120));

/// The answers that both backends must give are right, and not only alike.
#[tokio::test(start_paused = true)]
async fn verbs_answer_what_they_promise() {
    let client = Client::in_memory();
    let verbs = Verbs::new(&client, Uuid::from_u128(7));
    let (reads, writes) = (verbs.of_kind(Kind::Read), verbs.of_kind(Kind::Write));
    let (short, lease, long) = (5, 10, 20);
    let secs = Duration::from_secs;
    let held = |left| Answer::Held(Some(secs(left)));
    let attempt = async |verbs: &Verbs, owner, lease| {
        let answer = verbs.attempt("a", owner, secs(lease)).await;
        answer.unwrap()
    };
    assert_eq!(attempt(&reads, 1, lease).await, Answer::Granted);
    assert_eq!(attempt(&reads, 2, short).await, Answer::Granted);
    assert_eq!(attempt(&writes, 3, lease).await, held(lease));
    // A waiting writer keeps new readers out.
    let waiting = writes.waiting(secs(3));
    assert_eq!(attempt(&waiting, 3, lease).await, held(lease));
    assert_eq!(attempt(&waiting, 4, lease).await, held(lease));
    assert_eq!(attempt(&reads, 5, lease).await, held(3));
    assert_eq!(attempt(&reads, 1, lease).await, Answer::Granted);
    // Another writer's going is nothing to it, its own ends it.
    assert_eq!(writes.withdraw("a", 4).await.unwrap(), Answer::NotOurs);
    assert_eq!(attempt(&reads, 5, lease).await, held(3));
    assert_eq!(writes.withdraw("a", 3).await.unwrap(), Answer::NotOurs);
    assert_eq!(attempt(&reads, 5, lease).await, Answer::Granted);
    // What is left is what the longest of those who live has; the dead do not count.
    assert_eq!(attempt(&reads, 6, long).await, Answer::Granted);
    assert_eq!(reads.release("a", 6).await.unwrap(), Answer::Freed);
    assert_eq!(reads.release("a", 6).await.unwrap(), Answer::NotOurs);
    assert_eq!(attempt(&writes, 3, lease).await, held(lease));
    let batch = [("a", 1, 2, secs(long)), ("a", 9, 1, secs(long))];
    let renewed = reads.renew(&batch);
    assert_eq!(renewed.await.unwrap(), Answer::Renewed(vec![true, false]));
    tokio::time::sleep(secs(lease)).await;
    let batch = [("a", 2, 1, secs(long)), ("a", 5, 1, secs(long))];
    let renewed = reads.renew(&batch);
    assert_eq!(renewed.await.unwrap(), Answer::Renewed(vec![false, false]));
    let shown = |name: &str, count| vec![(format!("{}:{name}", Uuid::from_u128(7)), count)];
    let holders = Answer::Holders(shown("1", 2), Some(secs(long - lease)));
    assert_eq!(reads.inspect("a").await.unwrap(), holders);
    assert_eq!(
        writes.inspect("a").await.unwrap(),
        Answer::Holders(vec![], None)
    );
    assert_eq!(
        writes.force_release("a").await.unwrap(),
        Answer::Forced(false)
    );
    assert_eq!(
        reads.force_release("a").await.unwrap(),
        Answer::Forced(true)
    );
    // A writer lets readers from inside in, and leaves the lock to them.
    assert_eq!(attempt(&writes, 1, long).await, Answer::Granted);
    assert_eq!(attempt(&reads, 2, lease).await, held(long));
    assert_eq!(attempt(&reads.inside(3), 2, lease).await, held(long));
    assert_eq!(attempt(&reads.inside(1), 2, lease).await, Answer::Granted);
    assert_eq!(attempt(&waiting, 3, lease).await, held(long));
    assert_eq!(
        writes.inspect("a").await.unwrap(),
        Answer::Holders(shown("1:write", 1), Some(secs(long)))
    );
    assert_eq!(writes.release("a", 1).await.unwrap(), Answer::Freed);
    let holders = Answer::Holders(shown("2", 1), Some(secs(lease)));
    assert_eq!(reads.inspect("a").await.unwrap(), holders);
    // Readers were refused: a writer that waits has no turn, lets them go first, and is told when their turn ends.
    let turn = Answer::Held(Some(Duration::from_millis(20)));
    assert_eq!(attempt(&waiting, 3, lease).await, turn);
    assert_eq!(attempt(&writes, 3, lease).await, held(lease));
    assert_eq!(attempt(&reads, 4, short).await, Answer::Granted);
    assert_eq!(reads.release("a", 2).await.unwrap(), Answer::Freed);
    assert_eq!(reads.release("a", 4).await.unwrap(), Answer::Freed);
    assert_eq!(attempt(&waiting, 3, lease).await, turn);
    assert_eq!(attempt(&writes, 4, lease).await, Answer::Granted);
}
