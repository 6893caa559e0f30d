//! An SQLx transaction whose commit a newer holder of the lock makes fail.
//!
//! The lock is outside and the commit inside. No lock can stop a process that is paused between its last look at the lock and its
//! commit. Each row therefore keeps the highest fencing token that has written it, and an update with a lower one changes
//! nothing.

use distlock::{Client, distributed_lock};
use sqlx::SqlitePool;

use crate::Failure;

/// The table.
pub const SCHEMA: &str = "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, token INTEGER NOT NULL)";

const DEBIT: &str = "UPDATE account SET balance = balance - ?, token = ? WHERE id = ? AND token <= ? AND balance >= ?";

const RECORD: &str = "INSERT INTO debit (account, amount) VALUES (?, ?)";

/// The second table that the transaction writes to.
pub const DEBITS: &str = "CREATE TABLE debit (account INTEGER NOT NULL, amount INTEGER NOT NULL)";

/// Takes money from an account.
///
/// # Errors
/// Those of the lock and of the database, and if the account has too little money or a newer holder has written to it.
#[distributed_lock(key = "account:<account>", mode = "fenced", token = token, client = locks, wait = "5s")]
pub async fn withdraw(
    locks: &Client,
    pool: &SqlitePool,
    account: i64,
    amount: i64,
) -> Result<(), Failure> {
    debit(pool, account, amount, token).await
}

/// The transaction. It ends while the lock is held: if the lock is lost, its future is dropped and it is rolled back.
async fn debit(pool: &SqlitePool, account: i64, amount: i64, token: u64) -> Result<(), Failure> {
    // A token has at most 53 bits.
    let token = i64::try_from(token)?;
    let mut transaction = pool.begin().await?;
    sqlx::query(RECORD)
        .bind(account)
        .bind(amount)
        .execute(&mut *transaction)
        .await?;
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

    use sqlx::sqlite::SqlitePoolOptions;

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
        withdraw(&locks, &pool, 42, 30).await.unwrap();
        // The paused holder runs again and does not know that it has lost the lock.
        assert!(debit(&pool, 42, 50, paused).await.is_err());
        assert_eq!(number(&pool, "SELECT balance FROM account").await, 70);
        assert_eq!(number(&pool, "SELECT count(*) FROM debit").await, 1);
    }

    #[tokio::test]
    async fn twenty_withdrawals_at_once_take_what_is_there_and_no_more() {
        let (locks, pool) = (Client::in_memory(), bank().await);
        let tasks = (0..20).map(|_| {
            let (locks, pool) = (locks.clone(), pool.clone());
            tokio::spawn(async move { withdraw(&locks, &pool, 42, 10).await.is_ok() })
        });
        let mut done = 0;
        for task in tasks.collect::<Vec<_>>() {
            done += u32::from(task.await.unwrap());
        }
        assert_eq!(done, 10);
        assert_eq!(number(&pool, "SELECT balance FROM account").await, 0);
        assert_eq!(number(&pool, "SELECT sum(amount) FROM debit").await, 100);
    }
}
