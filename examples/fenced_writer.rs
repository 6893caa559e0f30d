//! A writer that was stopped past its lease, and a store that refuses what it writes then.
//!
//! No lock can prevent such a write: a process that stands still does not see its lease end. The fenced lock gives each
//! holder a higher token than all before, and the store, SQLite here, keeps the highest that it has seen.

use std::time::Duration;

use distlock::{Client, Error, distributed_lock};
use distlock_examples::{Failure, LockServer, check};
use rusqlite::Connection;
use tokio::sync::Mutex;

const SCHEMA: &str = "
    CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, token INTEGER NOT NULL);
    INSERT INTO account VALUES (42, 100, 0);
";

/// A token that is lower than the one that wrote last changes nothing.
const UPDATE: &str = "UPDATE account SET balance = ?2, token = ?3 WHERE id = ?1 AND token <= ?3";

/// A store that several writers share.
struct Store(Mutex<Connection>);

impl Store {
    fn open() -> rusqlite::Result<Self> {
        let store = Connection::open_in_memory()?;
        store.execute_batch(SCHEMA)?;
        Ok(Self(Mutex::new(store)))
    }

    /// Whether the store took the write.
    async fn write(&self, id: i64, balance: i64, token: u64) -> Result<bool, Failure> {
        let token = i64::try_from(token)?;
        let changed = self.0.lock().await.execute(UPDATE, (id, balance, token))?;
        Ok(changed == 1)
    }

    async fn balance(&self, id: i64) -> Result<i64, Failure> {
        let query = "SELECT balance FROM account WHERE id = ?1";
        Ok(self
            .0
            .lock()
            .await
            .query_row(query, [id], |row| row.get(0))?)
    }
}

/// A writer as it should be: the token of its hold goes along with what it writes.
#[distributed_lock(key = "account:<id>", mode = "fenced", token = token, client = locks, wait = "5s")]
async fn set_balance(
    locks: &Client,
    store: &Store,
    id: i64,
    balance: i64,
) -> Result<bool, Failure> {
    println!("token {token} writes {balance}");
    store.write(id, balance, token).await
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = LockServer::from_args();
    let (slow, quick) = (server.client().await?, server.client().await?);
    let store = Store::open()?;
    let lock = slow.fenced_lock("account:42");

    // The slow one reads, and is stopped: by a long pause of its virtual machine, say. Its lease ends meanwhile.
    let guard = lock.acquire().lease(Duration::from_millis(200)).await?;
    let (read, stale) = (store.balance(42).await?, guard.token());
    guard.lost().await;

    check(
        set_balance(&quick, &store, 42, read + 50).await?,
        "the holder writes",
    )?;

    // It goes on as if nothing had happened: nobody asked whether the hold is still there, nor could that help.
    println!("token {stale} writes {}, too late", read - 30);
    check(
        !store.write(42, read - 30, stale).await?,
        "the store refuses a stale token",
    )?;
    let balance = store.balance(42).await?;
    check(balance == 150, "the holder's write stands")?;
    println!("the store refused the stale token: the balance is {balance}");

    let lost = guard.release().await;
    check(
        lost.as_ref().is_err_and(Error::is_lost),
        "the release tells of the loss as well",
    )?;
    for client in [slow, quick] {
        client.close(Duration::from_secs(5)).await?;
    }
    Ok(())
}
