//! `#[distributed_lock]` on service functions: locking one account, locking two accounts at once, and skipping a report
//! that is already running.
//!
//! The callers of these functions do not need to know about the locks. Two replicas of a bank share one store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use distlock::{Client, Error, distributed_lock, is_held};
use distlock_examples::{Failure, LockServer, check};
use tokio::task::{JoinSet, yield_now};

/// Balances by account, in a store that many replicas share.
type Store = Arc<Mutex<HashMap<u8, i64>>>;

/// A bank whose store has no transactions. Only the locks keep its balances correct.
#[derive(Clone)]
struct Bank {
    locks: Client,
    store: Store,
}

impl Bank {
    /// Runs once at a time for each account. Other calls wait for up to five seconds.
    #[distributed_lock(key = "account:<account>", client = self.locks, wait = "5s")]
    async fn deposit(&self, account: u8, amount: i64) -> Result<i64, Error> {
        self.change(account, amount).await
    }

    /// Locks both accounts at once, so two transfers in opposite directions cannot deadlock.
    #[distributed_lock(keys = ["account:<from>", "account:<to>"], client = self.locks, wait = "5s")]
    async fn transfer(&self, from: u8, to: u8, amount: i64) -> Result<(), Error> {
        // `deposit` re-enters the lock that this function holds.
        self.deposit(from, -amount).await?;
        self.deposit(to, amount).await?;
        Ok(())
    }

    /// A call while another report is running returns `None` and no error.
    #[distributed_lock(key = "report", client = self.locks, wait = 0, on_busy = |_| Ok(None))]
    async fn report(&self) -> Result<Option<i64>, Error> {
        yield_now().await;
        Ok(Some(self.balances().values().sum()))
    }

    /// Reads, yields and writes. Without a lock, changes that others make in between are lost.
    async fn change(&self, account: u8, amount: i64) -> Result<i64, Error> {
        debug_assert!(
            is_held(&format!("account:{account}")),
            "lock the account first"
        );
        let balance = self.balances().get(&account).copied().unwrap_or(0);
        yield_now().await;
        self.balances().insert(account, balance + amount);
        Ok(balance + amount)
    }

    fn balances(&self) -> std::sync::MutexGuard<'_, HashMap<u8, i64>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (server, store) = (LockServer::from_args(), Store::default());
    let replicas = [server.client().await?, server.client().await?];
    let banks = replicas.map(|locks| Bank {
        locks,
        store: Arc::clone(&store),
    });

    for account in 0..4 {
        banks[0].deposit(account, 1_000).await?;
    }
    let mut transfers = JoinSet::new();
    for n in 0..100_u8 {
        let bank = banks[usize::from(n % 2)].clone();
        transfers.spawn(async move { bank.transfer(n % 4, (n + 1 + n / 4) % 4, 5).await });
    }
    while let Some(transfer) = transfers.join_next().await {
        transfer??;
    }

    let (first, second) = tokio::join!(banks[0].report(), banks[1].report());
    let reports = [first?, second?];
    println!("2 replicas made 100 concurrent transfers between 4 accounts of 1000 each");
    println!("results of two concurrent reports: {reports:?}");
    check(reports.contains(&Some(4_000)), "no money was lost or made")?;
    println!("no money was lost or made");
    for bank in banks {
        bank.locks.close(std::time::Duration::from_secs(5)).await?;
    }
    Ok(())
}
