//! A fenced lock: SQLite rejects the write of a holder whose lease has ended.
//!
//! No lock can prevent such a write, because a paused process does not notice that its lease ends. The fenced lock gives
//! each holder a higher token than all earlier ones, and the table keeps the highest token that it has seen. A writer stores its
//! token before it reads the balance: from then on the table refuses the writes of earlier holders.

use std::time::Duration;

use distlock::{Client, Error, distributed_lock};
use distlock_examples::{Failure, LockServer, check};
use rusqlite::Connection;
use tokio::sync::Mutex;

const SCHEMA: &str = "
    CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, token BIGINT NOT NULL DEFAULT 0);
    INSERT INTO account VALUES (42, 100, 0);
";

/// Stores the token of a holder that is about to read. Changes nothing if a newer holder has stored its token.
const BEGIN: &str = "UPDATE account SET token = ?2 WHERE id = ?1 AND token <= ?2";

/// Changes nothing if a newer holder has stored its token.
const UPDATE: &str = "UPDATE account SET balance = ?2, token = ?3 WHERE id = ?1 AND token <= ?3";

/// The table that both writers share.
struct Store(Mutex<Connection>);

impl Store {
    fn open() -> rusqlite::Result<Self> {
        let store = Connection::open_in_memory()?;
        store.execute_batch(SCHEMA)?;
        Ok(Self(Mutex::new(store)))
    }

    /// Returns the balance, unless a newer holder has stored its token.
    async fn begin(&self, id: i64, token: u64) -> Result<Option<i64>, Failure> {
        let token = i64::try_from(token)?;
        let changed = self.0.lock().await.execute(BEGIN, (id, token))?;
        if changed == 0 {
            return Ok(None);
        }
        self.balance(id).await.map(Some)
    }

    /// Returns whether the write was accepted.
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

/// Sends the fencing token of the hold with each statement. `token = token` makes it a variable of the body. `meanwhile` is what
/// happens between the read and the write.
#[distributed_lock(key = "account:<id>", mode = "fenced", token = token, client = locks, wait = "5s")]
async fn deposit(
    locks: &Client,
    store: &Store,
    id: i64,
    amount: i64,
    meanwhile: impl Future<Output = Result<(), Failure>>,
) -> Result<bool, Failure> {
    let Some(balance) = store.begin(id, token).await? else {
        return Ok(false);
    };
    meanwhile.await?;
    println!("token {token} writes {}", balance + amount);
    store.write(id, balance + amount, token).await
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = LockServer::from_args();
    let (slow, quick) = (server.client().await?, server.client().await?);
    let store = Store::open()?;
    let lock = slow.fenced_lock("account:42");

    // The slow writer reads the balance and is then paused, for example with its virtual machine, until its lease has ended.
    let guard = lock.acquire().lease(Duration::from_millis(200)).await?;
    let stale = guard.token();
    let read = store.begin(42, stale).await?.ok_or("the first holder")?;
    guard.lost().await;

    // The slow writer continues without checking its hold. A check would not help: it could be paused right after it. The quick
    // writer has read the balance by now and has not written yet.
    let late_write = async {
        println!(
            "token {stale} writes {}, after its lease has ended",
            read - 30
        );
        check(
            !store.write(42, read - 30, stale).await?,
            "the store refuses a stale token",
        )
    };
    check(
        deposit(&quick, &store, 42, 50, late_write).await?,
        "the store accepts the current holder's write",
    )?;
    let balance = store.balance(42).await?;
    check(balance == 150, "the current holder's write is kept")?;
    println!("the store refused the stale token: the balance is {balance}");

    let lost = guard.release().await;
    check(
        lost.as_ref().is_err_and(Error::is_lost),
        "the release reports the loss",
    )?;
    for client in [slow, quick] {
        client.close(Duration::from_secs(5)).await?;
    }
    Ok(())
}
