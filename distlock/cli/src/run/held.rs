//! What a command runs under: a lock of one or several keys, or a permit of a semaphore.

use std::fmt::Display;
use std::pin::{Pin, pin};
use std::time::Duration;

use distlock::{
    Acquire, Client, Error, ExpirablePermit, ExpirableSemaphore, Guard, Leased, LockSource,
    Primitive,
};
use tokio::time::{Instant, sleep, timeout};

use crate::args::Run;
use crate::exit::{Failed, Status, by_options};
use crate::output::{note, plain};

/// The variable in which a command finds the keys around it, each on a line.
pub(super) const KEY_VARIABLE: &str = "DISTLOCK_KEY";

/// After this time, a wait for the key of a `run` around this one is reported.
const NESTED_WAIT: Duration = Duration::from_secs(1);

/// How long the look may take that finds the holder, or data of another program, when the wait is over.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// The shortest time of a hold, as in the library.
const SHORTEST: Duration = Duration::from_millis(1);

/// What is held while the command runs.
pub(super) enum Held {
    Lock(Guard),
    Permit(ExpirablePermit),
}

impl Held {
    /// Acquires it. If the wait ends without the lock, the error says who holds it, or that the key has other data.
    pub(super) async fn acquire(client: &Client, args: &Run) -> Result<Self, Failed> {
        match Self::acquire_or_tell(client, args).await {
            Err(failed) if failed.status == Status::Busy => {
                Err(match timeout(LAST_LOOK, last_look(client, args)).await {
                    Ok(Ok(Some((status, seen)))) => failed.and(seen).with(status),
                    Ok(Ok(None)) => failed,
                    Ok(Err(error)) => failed.and(not_looked(by_options(&error))),
                    Err(_) => failed.and(not_looked("the server did not answer in time")),
                })
            }
            acquired => acquired.map_err(Failed::before_the_start),
        }
    }

    /// A wait that seems to be for the `run` around this one is reported on stderr, because it may never end.
    async fn acquire_or_tell(client: &Client, args: &Run) -> Result<Self, Failed> {
        let mut acquiring = pin!(Self::acquire_without_a_word(client, args));
        let around = std::env::var_os(KEY_VARIABLE).unwrap_or_default();
        let around = around.to_string_lossy();
        let is_around =
            // As a whole, too: a key may contain a line break.
            |key: &&String| around == key.as_str() || around.lines().any(|one| one == *key);
        if args.permits.is_none()
            && let Some(key) = args.keys.iter().find(is_around)
        {
            tokio::select! {
                acquired = &mut acquiring => return acquired,
                () = sleep(NESTED_WAIT) => note(format_args!(
                    "distlock: still waiting for {key:?}. {KEY_VARIABLE} says that this command was started by a `distlock run` \
                     of the same key. If that one still runs and uses the same server, this wait cannot succeed: leave out the \
                     inner `distlock run`, or give it another key.",
                )),
            }
        }
        acquiring.await
    }

    async fn acquire_without_a_word(client: &Client, args: &Run) -> Result<Self, Failed> {
        check_longest(args)?;
        let Some(permits) = args.permits else {
            let lock = LockSource::from(client).acquire(args.kind.into(), &args.keys);
            let mut lock = bounded(lock, args);
            if let Some(time) = args.hold_at_least {
                lock = lock.hold_at_least(time);
            }
            return Ok(Self::Lock(lock.await?));
        };
        let [key] = &args.keys[..] else {
            return Err(Failed::usage(
                "--permits takes one key: permits of several semaphores cannot be taken together",
            ));
        };
        Ok(Self::Permit(permit(client, key, permits, args).await?))
    }

    /// The fencing token.
    pub(super) fn token(&self) -> Option<u64> {
        match self {
            Self::Lock(guard) => guard.fencing_token(),
            Self::Permit(_) => None,
        }
    }

    /// Completes when it is lost.
    pub(super) fn lost(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match self {
            Self::Lock(guard) => Box::pin(guard.lost()),
            Self::Permit(permit) => Box::pin(permit.lost()),
        }
    }

    pub(super) async fn release(self) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
        }
    }
}

/// Who holds the first of the keys that is held, with the names of the clients, which a refusal does not tell. Or that a key has data of
/// another program, which an acquisition takes for a lock. `None` if their names are not known, or nobody holds them any more.
async fn last_look(client: &Client, args: &Run) -> Result<Option<(Status, String)>, Error> {
    for key in &args.keys {
        let report = client.inspect(key).await?;
        if report.primitive == Primitive::OtherData {
            let seen = format!(
                "{key:?} has data of another program and is no lock: nobody gets it while the data is there"
            );
            return Ok(Some((Status::Software, seen)));
        }
        let mut holders = report.holders.iter();
        if let Some((holder, client)) = holders.find_map(|one| Some((one, one.client.as_ref()?))) {
            let name = plain(&client.name);
            let address = plain(&client.address);
            let more = match report.holder_total.saturating_sub(1) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let owner = plain(&holder.owner);
            let seen = format!(
                "after the wait {key:?} was held by {name} from {address}, owner {owner}{more}"
            );
            return Ok(Some((Status::Busy, seen)));
        }
    }
    Ok(None)
}

/// The key may have data of another program all the same.
fn not_looked(why: impl Display) -> String {
    format!(
        "the look that tells a lock from data of another program has failed, and needs the rights of `who`: {why}"
    )
}

fn bounded<G>(mut acquire: Acquire<G>, args: &Run) -> Acquire<G>
where
    G: Leased,
{
    if let Some(wait) = args.wait {
        acquire = acquire.wait(wait);
    }
    // The library would free the lock at the end of this time, while the command may still run.
    if args.max_hold.is_some() {
        acquire = acquire.max_hold(Duration::MAX);
    }
    acquire
}

/// Refuses a `--max-hold` that the library would refuse: this program keeps that time by itself.
fn check_longest(args: &Run) -> Result<(), Failed> {
    match args.max_hold {
        Some(most) if most < SHORTEST => Err(Failed::usage("--max-hold is shorter than 1ms")),
        Some(most) if most < args.hold_at_least.unwrap_or_default() => {
            Err(Failed::usage("--hold-at-least is longer than --max-hold"))
        }
        _ => Ok(()),
    }
}

/// Acquires a permit of a semaphore with so many. If the semaphore is deleted meanwhile, it is made again, and the wait goes on.
/// If its number was changed before the grant, the permit is given back, and the new number counts as at the start.
async fn permit(
    client: &Client,
    key: &str,
    permits: u32,
    args: &Run,
) -> Result<ExpirablePermit, Failed> {
    let semaphore = client.expirable_semaphore(key);
    let wait = args.wait.or(LockSource::from(client).default_wait());
    // What has no limit stays so.
    let wait = wait.filter(|wait| *wait < Duration::MAX);
    let since = Instant::now();
    loop {
        set_permits(&semaphore, key, permits).await?;
        let mut acquire = bounded(semaphore.acquire(), args);
        if let Some(wait) = wait {
            acquire = acquire.wait(wait.saturating_sub(since.elapsed()));
        }
        let permit = match acquire.await {
            Err(error) if error.is_lost() => continue,
            acquired => acquired?,
        };
        let there = semaphore.permits().await;
        if matches!(there, Ok(there) if there == i64::from(permits)) {
            return Ok(permit);
        }
        match permit.release().await {
            // The semaphore was deleted since the grant, and is made again.
            Err(error) if !error.is_lost() => return Err(error.into()),
            _ => {}
        }
        there?;
    }
}

/// Gives the semaphore its number of permits. Another number is replaced only while no permit is taken: two runs with
/// different numbers would let more commands run than one of them allows.
///
/// The check and the change are two steps, and a run that gets its permit between them goes on under the former number. A forced
/// release of what was seen would not be safer: a run that has just set two permits and taken one leaves the same number as one free
/// permit of one.
async fn set_permits(
    semaphore: &ExpirableSemaphore,
    key: &str,
    permits: u32,
) -> Result<(), Failed> {
    if semaphore.try_set_permits(permits).await? {
        return Ok(());
    }
    let there = semaphore.permits().await?;
    if there == i64::from(permits) {
        return Ok(());
    }
    let taken = semaphore.acquired_permits().await?;
    if taken > 0 {
        return Err(Failed::usage(format!(
            "{key:?} has {there} permits, of which {taken} are taken, and --permits says {permits}: all runs of a key need the \
             same number. It changes when none is taken."
        )));
    }
    Ok(semaphore.set_permits(permits).await?)
}
