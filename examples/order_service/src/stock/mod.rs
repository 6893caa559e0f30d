//! How many of each item are left and how many were sold, in this process or in Redis.
//!
//! Reads and writes are separate calls, as in most real stores. Only a lock keeps two customers from reading the same number.

#[cfg(feature = "redis")]
mod redis;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Failure;

#[cfg(feature = "redis")]
pub(crate) use self::redis::RedisStock;

/// The stock when the shop opens.
pub(crate) const OPENING: [(&str, i64); 3] = [("lamp", 40), ("chair", 60), ("table", 30)];

/// Where the stock is kept.
#[derive(Clone)]
pub(crate) enum Stock {
    Memory(MemoryStock),
    #[cfg(feature = "redis")]
    Redis(RedisStock),
}

#[derive(Clone, Default)]
pub(crate) struct MemoryStock {
    numbers: Arc<Mutex<HashMap<String, i64>>>,
}

fn left_key(item: &str) -> String {
    format!("shop:left:{item}")
}

fn sold_key(item: &str) -> String {
    format!("shop:sold:{item}")
}

#[cfg(feature = "redis")]
fn unsure_key(item: &str) -> String {
    format!("shop:unsure:{item}")
}

impl Stock {
    /// Adds a process to those that sell. The first one sets the stock.
    pub(crate) async fn open(&self) -> Result<(), Failure> {
        let is_first = match self {
            Self::Memory(_) => true,
            #[cfg(feature = "redis")]
            Self::Redis(stock) => stock.join().await?,
        };
        if is_first {
            for (item, number) in OPENING {
                self.set(&left_key(item), number).await?;
                self.set(&sold_key(item), 0).await?;
                #[cfg(feature = "redis")]
                if let Self::Redis(stock) = self {
                    stock.delete(&unsure_key(item)).await?;
                }
            }
        }
        Ok(())
    }

    /// Keeps the shop open. Call it every few seconds.
    pub(crate) async fn stay_open(&self) -> Result<(), Failure> {
        match self {
            Self::Memory(_) => Ok(()),
            #[cfg(feature = "redis")]
            Self::Redis(stock) => stock.stay_open().await,
        }
    }

    /// Removes a process from those that sell.
    pub(crate) async fn close(&self) -> Result<(), Failure> {
        match self {
            Self::Memory(_) => Ok(()),
            #[cfg(feature = "redis")]
            Self::Redis(stock) => stock.leave().await,
        }
    }

    pub(crate) async fn left(&self, item: &str) -> Result<Option<i64>, Failure> {
        self.get(&left_key(item)).await
    }

    pub(crate) async fn set_left(&self, item: &str, number: i64) -> Result<(), Failure> {
        self.set(&left_key(item), number).await
    }

    pub(crate) async fn sold(&self, item: &str) -> Result<i64, Failure> {
        Ok(self.get(&sold_key(item)).await?.unwrap_or(0))
    }

    /// Counts a sale. This is atomic, so the number of sales is correct even without locks.
    pub(crate) async fn note_sale(&self, item: &str) -> Result<(), Failure> {
        self.add(&sold_key(item), 1).await?;
        Ok(())
    }

    /// Notes for all processes that a sale failed in its middle: the stock may be taken off, and the sale not be counted. It is
    /// called under the lock of the item, so whoever reads the books sees it.
    #[cfg_attr(
        not(feature = "redis"),
        allow(unused_variables, reason = "what is in memory does not fail")
    )]
    pub(crate) async fn note_unsure(&self, item: &str, reason: &str) -> Result<(), Failure> {
        match self {
            Self::Memory(_) => Ok(()),
            #[cfg(feature = "redis")]
            Self::Redis(stock) => stock.push(&unsure_key(item), reason).await,
        }
    }

    /// Why sales failed in their middle.
    #[cfg_attr(
        not(feature = "redis"),
        allow(unused_variables, reason = "what is in memory does not fail")
    )]
    pub(crate) async fn unsure(&self, item: &str) -> Result<Vec<String>, Failure> {
        match self {
            Self::Memory(_) => Ok(Vec::new()),
            #[cfg(feature = "redis")]
            Self::Redis(stock) => stock.all(&unsure_key(item)).await,
        }
    }

    async fn get(&self, key: &str) -> Result<Option<i64>, Failure> {
        match self {
            Self::Memory(stock) => Ok(stock.with(|numbers| numbers.get(key).copied())),
            #[cfg(feature = "redis")]
            Self::Redis(stock) => stock.get(key).await,
        }
    }

    async fn set(&self, key: &str, number: i64) -> Result<(), Failure> {
        match self {
            Self::Memory(stock) => stock.with(|numbers| {
                numbers.insert(key.to_owned(), number);
            }),
            #[cfg(feature = "redis")]
            Self::Redis(stock) => stock.set(key, number).await?,
        }
        Ok(())
    }

    async fn add(&self, key: &str, by: i64) -> Result<i64, Failure> {
        match self {
            Self::Memory(stock) => Ok(stock.with(|numbers| {
                let number = numbers.entry(key.to_owned()).or_default();
                *number += by;
                *number
            })),
            #[cfg(feature = "redis")]
            Self::Redis(stock) => stock.add(key, by).await,
        }
    }
}

impl MemoryStock {
    fn with<T>(&self, look: impl FnOnce(&mut HashMap<String, i64>) -> T) -> T {
        look(&mut self.numbers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
