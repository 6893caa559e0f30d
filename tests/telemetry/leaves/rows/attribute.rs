//! Functions under `#[distributed_lock]`.

use distlock::{Error, LockSource, distributed_lock, with_client};
use distlock_tests::LockKind;

use super::{Row, WORLDS, World, body};
use crate::calls;
use crate::play::Play;

const ITEM: &[&str] = &["distributed_lock"];

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for world in WORLDS {
        of_each_kind(&mut rows, world);
        rows.push(without_a_client().world(world));
    }
    rows.extend([a_loss(), an_output()]);
    rows
}

/// What a row's function gets.
fn arguments(play: &Play) -> (LockSource, Vec<String>) {
    (play.source(), play.keys())
}

#[distributed_lock(keys = [..keys.clone()], client = locks, wait = "300s")]
async fn reentrant(locks: LockSource, keys: Vec<String>) -> Result<(), Error> {
    body().await;
    Ok(())
}

#[distributed_lock(keys = [..keys.clone()], client = locks, mode = fair, wait = "300s")]
async fn fair(locks: LockSource, keys: Vec<String>) -> Result<(), Error> {
    body().await;
    Ok(())
}

#[distributed_lock(keys = [..keys.clone()], client = locks, mode = write, wait = "300s")]
async fn write(locks: LockSource, keys: Vec<String>) -> Result<(), Error> {
    body().await;
    Ok(())
}

#[distributed_lock(keys = [..keys.clone()], client = locks, mode = read, wait = "300s")]
async fn read(locks: LockSource, keys: Vec<String>) -> Result<(), Error> {
    body().await;
    Ok(())
}

#[distributed_lock(keys = [..keys.clone()], client = locks, lease = "3600s", wait = "300s")]
async fn leased(locks: LockSource, keys: Vec<String>) -> Result<(), Error> {
    body().await;
    Ok(())
}

fn of_each_kind(rows: &mut Vec<Row>, world: World) {
    macro_rules! of {
        ($($kind:ident: $function:ident,)*) => {$(
            let row = Row::new(ITEM, LockKind::$kind, |play| async move {
                let (locks, keys) = arguments(&play);
                async move { drop($function(locks, keys).await) }
            });
            rows.push(row.also(stringify!($function)).world(world));
        )*};
    }
    of! {
        Reentrant: reentrant,
        Reentrant: leased,
        Fair: fair,
        Write: write,
        Read: read,
        Multi: reentrant,
        Red: reentrant,
    }
}

/// With the client of the code around it.
#[distributed_lock(key = "<key>", wait = "300s")]
pub(super) async fn guarded_by_the_current_client(key: String) -> Result<(), Error> {
    body().await;
    Ok(())
}

fn without_a_client() -> Row {
    let row = Row::new(ITEM, LockKind::Reentrant, |play| async move {
        let (client, key) = (play.client().clone(), play.key.clone());
        async move { drop(with_client(client, guarded_by_the_current_client(key)).await) }
    });
    row.also("the current client")
}

fn told(output: u64, _: Error) -> Result<u64, Error> {
    calls::call("a function for losses");
    Ok(output)
}

#[distributed_lock(keys = [..keys.clone()], client = locks, wait = "300s", on_lost = told)]
async fn loses(locks: LockSource, keys: Vec<String>, thief: distlock::Lock) -> Result<u64, Error> {
    body().await;
    thief.force_release().await?;
    Ok(42)
}

fn a_loss() -> Row {
    let row = Row::new(ITEM, LockKind::Reentrant, |play| async move {
        let (locks, keys) = arguments(&play);
        let thief = play.other().lock(&play.key);
        async move { drop(loses(locks, keys, thief).await) }
    });
    row.also("a loss")
}

fn failed(_: Error) -> u64 {
    calls::call("a function for errors");
    0
}

/// Its output has no place for an error.
#[distributed_lock(keys = [..keys.clone()], client = locks, wait = "300s", on_error = failed)]
async fn infallible(locks: LockSource, keys: Vec<String>, thief: distlock::Lock) -> u64 {
    body().await;
    drop(thief.force_release().await);
    42
}

fn an_output() -> Row {
    let row = Row::new(ITEM, LockKind::Reentrant, |play| async move {
        let (locks, keys) = arguments(&play);
        let thief = play.other().lock(&play.key);
        async move {
            let _spent: u64 = infallible(locks, keys, thief).await;
        }
    });
    row.also("an output")
}
