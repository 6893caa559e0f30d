//! An SQLx transaction whose commit a newer holder of the lock makes fail.
//!
//! The lock is outside and the commit inside. No lock can stop a process that is paused between its last look at the lock and its
//! commit. Each row therefore keeps the highest fencing token that has written it, and an update with a lower one changes
//! nothing.
//!
//! The token does not tell a repetition from a new withdrawal: it has a higher token, too. If the lock or the connection is lost while
//! the commit is under way, nobody knows whether the money was taken. Each withdrawal therefore has an id, which its transaction
//! stores, and a repetition finds it there. Another withdrawal with the same id is refused.
//!
//! `max_hold` ends the hold of a withdrawal whose database hangs. Without it the account would stay locked.

use distlock::{Client, distributed_lock};
use sqlx::SqlitePool;

use crate::Failure;

/// The table. A token has more than 32 bits, which `INTEGER` has in other databases.
pub const SCHEMA: &str = "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, token BIGINT NOT NULL DEFAULT 0)";

const DEBIT: &str = "UPDATE account SET balance = balance - ?, token = ? WHERE id = ? AND token <= ? AND balance >= ?";

const RECORD: &str = "INSERT INTO debit (request, account, amount) VALUES (?, ?, ?) ON CONFLICT (request) DO NOTHING";

const RECORDED: &str = "SELECT account, amount FROM debit WHERE request = ?";

/// The second table that the transaction writes to.
pub const DEBITS: &str = "CREATE TABLE debit (request TEXT PRIMARY KEY, account INTEGER NOT NULL, amount INTEGER NOT NULL)";

/// Takes money from an account, once for each `request`. Whoever makes the request chooses its id, and keeps it for repetitions. The
/// amount has no sign, since a negative one would put money into the account.
///
/// # Errors
/// Those of the lock and of the database, and if the account has too little money, a newer holder has written to it, or the id belongs
/// to another withdrawal. After [`Error::Lost`](distlock::Error::Lost) and after an error of the commit the money may have been taken: the caller repeats the
/// request with the same id.
#[distributed_lock(key = "account:<account>", mode = "fenced", token = token, client = locks, wait = "5s", max_hold = "30s")]
pub async fn withdraw(
    locks: &Client,
    pool: &SqlitePool,
    request: &str,
    account: i64,
    amount: u32,
) -> Result<(), Failure> {
    debit(pool, request, account, amount, token).await
}

/// The transaction. If the lock is lost, its future is dropped. The transaction is rolled back then, except if its commit was sent
/// before: the database carries that out.
async fn debit(
    pool: &SqlitePool,
    request: &str,
    account: i64,
    amount: u32,
    token: u64,
) -> Result<(), Failure> {
    // A token is below 2^63. Databases have no unsigned column for it.
    let token = i64::try_from(token)?;
    let amount = i64::from(amount);
    let mut transaction = pool.begin().await?;
    let record = sqlx::query(RECORD).bind(request).bind(account).bind(amount);
    if record.execute(&mut *transaction).await?.rows_affected() == 0 {
        let recorded = sqlx::query_as::<_, (i64, i64)>(RECORDED).bind(request);
        let recorded = recorded.fetch_one(&mut *transaction).await?;
        transaction.rollback().await?;
        if recorded != (account, amount) {
            return Err("the id belongs to another withdrawal".into());
        }
        // The money was taken before.
        return Ok(());
    }
    let debit = sqlx::query(DEBIT)
        .bind(amount)
        .bind(token)
        .bind(account)
        .bind(token)
        .bind(amount);
    if debit.execute(&mut *transaction).await?.rows_affected() == 0 {
        transaction.rollback().await?;
        return Err("too little money, or a newer holder of the lock has written".into());
    }
    transaction.commit().await?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]
mod tests {
    use std::time::Duration;

    use distlock::MemoryServer;
    use sqlx::sqlite::SqlitePoolOptions;
    use tokio::sync::mpsc;

    use super::*;

    async fn bank() -> SqlitePool {
        // One connection: each has a database of its own in memory.
        let pool = SqlitePoolOptions::new().max_connections(1);
        let pool = pool.connect("sqlite::memory:").await.unwrap();
        for statement in [SCHEMA, DEBITS, "INSERT INTO account VALUES (42, 100, 0)"] {
            sqlx::query(statement).execute(&pool).await.unwrap();
        }
        pool
    }

    async fn number(pool: &SqlitePool, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(pool).await.unwrap()
    }

    #[tokio::test]
    async fn transaction_of_a_holder_that_was_paused_is_rolled_back_after_a_newer_one_has_written()
    {
        let (locks, pool) = (Client::in_memory(), bank().await);
        let lease = Duration::from_millis(50);
        let guard = locks
            .fenced_lock("account:42")
            .acquire()
            .lease(lease)
            .await
            .unwrap();
        let paused = guard.token();
        guard.lost().await;
        withdraw(&locks, &pool, "a", 42, 30).await.unwrap();
        // The paused holder runs again and does not know that it has lost the lock.
        assert!(debit(&pool, "b", 42, 50, paused).await.is_err());
        assert_eq!(number(&pool, "SELECT balance FROM account").await, 70);
        assert_eq!(number(&pool, "SELECT count(*) FROM debit").await, 1);
    }

    #[tokio::test]
    async fn twenty_withdrawals_at_once_take_what_is_there_and_no_more() {
        let (locks, pool) = (Client::in_memory(), bank().await);
        let tasks = (0..20).map(|n| {
            let (locks, pool) = (locks.clone(), pool.clone());
            let request = n.to_string();
            tokio::spawn(async move { withdraw(&locks, &pool, &request, 42, 10).await.is_ok() })
        });
        let mut done = 0;
        for task in tasks.collect::<Vec<_>>() {
            done += u32::from(task.await.unwrap());
        }
        assert_eq!(done, 10);
        assert_eq!(number(&pool, "SELECT balance FROM account").await, 0);
        assert_eq!(number(&pool, "SELECT sum(amount) FROM debit").await, 100);
    }

    #[tokio::test]
    async fn withdrawal_with_the_id_of_another_one_is_refused() {
        let (locks, pool) = (Client::in_memory(), bank().await);
        withdraw(&locks, &pool, "a", 42, 30).await.unwrap();
        for (account, amount) in [(42, 50), (43, 30)] {
            let refused = withdraw(&locks, &pool, "a", account, amount).await;
            let error = refused.unwrap_err().to_string();
            assert_eq!(error, "the id belongs to another withdrawal");
        }
        withdraw(&locks, &pool, "a", 42, 30).await.unwrap();
        assert_eq!(number(&pool, "SELECT balance FROM account").await, 70);
    }

    #[tokio::test]
    async fn request_whose_lock_is_lost_during_its_commit_takes_the_money_once_when_it_is_repeated()
    {
        // A loss is found by a renewal, once a second.
        let locks = Client::builder().watchdog_timeout(Duration::from_secs(3));
        let locks = locks.in_memory(&MemoryServer::new()).unwrap();
        let pool = bank().await;
        // The database stands still in its commits until `go_on` is dropped.
        let (commits, mut committing) = mpsc::unbounded_channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let mut connection = pool.acquire().await.unwrap();
        let mut handle = connection.lock_handle().await.unwrap();
        handle.set_commit_hook(move || {
            let _told = commits.send(());
            let _dropped = may_go_on.recv();
            true
        });
        drop(handle);
        drop(connection);
        let loses_it = async {
            committing.recv().await.unwrap();
            let lock = locks.fenced_lock("account:42");
            assert!(lock.force_release().await.unwrap());
        };
        let (first, ()) = tokio::join!(withdraw(&locks, &pool, "a", 42, 30), loses_it);
        let error = first.unwrap_err().downcast::<distlock::Error>().unwrap();
        assert!(error.is_lost(), "{error}");
        drop(go_on);
        for _ in 0..2 {
            withdraw(&locks, &pool, "a", 42, 30).await.unwrap();
            assert_eq!(number(&pool, "SELECT balance FROM account").await, 70);
        }
        assert_eq!(number(&pool, "SELECT sum(amount) FROM debit").await, 30);
    }
}
