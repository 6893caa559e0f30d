//! `run`: a command under a lock.

mod bound;
mod child;
mod command;
mod group;
mod held;
mod outcome;

use std::time::Duration;

use distlock::{Client, LockSource};
use futures_util::FutureExt;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use self::bound::Bound;
pub(crate) use self::child::become_command;
pub(crate) use self::command::cannot_run;
use self::command::command;
use self::held::Held;
use self::outcome::{NotReleased, Outcome};
use crate::args::Run;
use crate::exit::{Failed, Status};
use crate::output::{names, note_in_background};
use crate::signals::Signals;

/// How long the end of what is given up may take to reach the server. Later its lease frees the lock.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the command under the lock, once the client is connected. Returns the exit status of this program.
pub(crate) async fn run(
    connecting: impl Future<Output = Result<Client, Failed>>,
    args: &Run,
    json: bool,
) -> Result<u8, Failed> {
    note_in_background();
    // Before it connects: from here on no signal ends this process, and none is lost. The kernel drops those that the first process of
    // a container does not handle.
    let mut signals = Signals::listen().map_err(|error| Failed::new(Status::Software, error))?;
    let client = tokio::select! {
        connected = connecting => connected?,
        signal = signals.next() => {
            let when = "while it connected to the server";
            return Ok(Outcome::interrupted(args, signal, when, Duration::ZERO).told(json));
        }
    };
    let lease = LockSource::from(&client).watchdog_timeout();
    let started = Instant::now();
    let held = tokio::select! {
        acquired = Held::acquire(&client, args) => {
            acquired.map_err(|failed| failed.if_busy(args.busy_status))?
        }
        signal = signals.next() => {
            // What was asked for, and may yet be granted, is given back.
            let _by_its_lease = client.close(CLOSE_TIMEOUT).await;
            let when = format_args!("while it waited for {}", names(&args.keys));
            return Ok(Outcome::interrupted(args, signal, when, started.elapsed()).told(json));
        }
    };
    let waited = started.elapsed();
    let token = held.token();
    let since = Instant::now();
    let longest = args.max_hold.map(Bound::after);
    let ended = command(args, &held, longest.as_ref(), &mut signals, json).await;
    let held_for = since.elapsed();
    let released = tokio::select! {
        released = held.release() => released.map_err(NotReleased::Failed),
        signal = later_signal(&mut signals) => Err(NotReleased::Left(signal)),
    };
    let ended = match (ended, &released) {
        (Ok(ended), _) => ended,
        (Err(failed), Err(why)) if !why.is_lost() => {
            return Err(failed.and(why.text(args, lease)));
        }
        (Err(failed), _) => return Err(failed),
    };
    let outcome = Outcome::ended(args, ended, waited, held_for).with_token(token);
    Ok(outcome.released(args, lease, &released).told(json))
}

/// The next signal after a moment. One that has just ended the command does not end the release as well.
async fn later_signal(signals: &mut Signals) -> Signal {
    sleep(CLOSE_TIMEOUT).await;
    while signals.next().now_or_never().is_some() {}
    signals.next().await
}
