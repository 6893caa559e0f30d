//! Service functions under locks, by an attribute: each says which key it needs, and its callers need not know.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use distlock::{Client, Error, distributed_lock, is_held};
use distlock_examples::{Failure, LockServer, check};
use tokio::task::{JoinSet, yield_now};

/// Balances by account, in a store that many replicas share.
type Store = Arc<Mutex<HashMap<u8, i64>>>;

/// A bank whose store knows no transactions: only locks keep its books right.
#[derive(Clone)]
struct Bank {
    locks: Client,
    store: Store,
}

impl Bank {
    /// One at a time for each account; others wait for five seconds and are refused then.
    #[distributed_lock(key = "account:<account>", client = self.locks, wait = "5s")]
    async fn deposit(&self, account: u8, amount: i64) -> Result<i64, Error> {
        self.change(account, amount).await
    }

    /// Both accounts as one lock: two transfers in opposite directions do not wait for each other.
    #[distributed_lock(keys = ["account:<from>", "account:<to>"], client = self.locks, wait = "5s")]
    async fn transfer(&self, from: u8, to: u8, amount: i64) -> Result<(), Error> {
        // Entered again from inside: the lock is held already, and no deadlock.
        self.deposit(from, -amount).await?;
        self.deposit(to, amount).await?;
        Ok(())
    }

    /// Whoever comes while the report is made gets none, and no error either.
    #[distributed_lock(key = "report", client = self.locks, wait = 0, on_busy = |_| Ok(None))]
    async fn report(&self) -> Result<Option<i64>, Error> {
        yield_now().await;
        Ok(Some(self.balances().values().sum()))
    }

    /// Reads, is interrupted, and writes: without a lock, changes between the two are lost.
    async fn change(&self, account: u8, amount: i64) -> Result<i64, Error> {
        debug_assert!(
            is_held(&format!("account:{account}")),
            "call it under the account's lock"
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
    println!("100 transfers at once between 4 accounts of 1000 each, by 2 replicas");
    println!("two reports at the same time: {reports:?}");
    check(reports.contains(&Some(4_000)), "no money was lost or made")?;
    println!("no money was lost or made");
    for bank in banks {
        bank.locks.close(std::time::Duration::from_secs(5)).await?;
    }
    Ok(())
}
