//! The service functions, and the locks that guard them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use distlock::{Client, distributed_lock};
use serde::Serialize;
use tokio::task::JoinHandle;

use crate::Failure;
use crate::stock::{OPENING, Stock};

/// Why an order or a payment failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShopError {
    #[error("sold out")]
    SoldOut,
    #[error("the shop has no such item")]
    NoSuchItem,
    #[error("there is nothing to pay")]
    NothingToPay,
    #[error(transparent)]
    Lock(#[from] distlock::Error),
    #[error("the stock cannot be reached")]
    Stock(#[source] Failure),
}

/// An order, as it is returned to the customer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Order {
    pub(crate) item: String,
    pub(crate) paid: bool,
}

/// The shop. Clones share the same stock and orders.
#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) locks: Client,
    pub(crate) guarded: bool,
    stock: Stock,
    /// Each process has orders of its own, and only the stock is shared. A real shop keeps both in one database.
    orders: Arc<Mutex<HashMap<u64, Order>>>,
    waits: Arc<Mutex<Waits>>,
    _open: Arc<StaysOpen>,
}

/// How long acquisitions of the stock locks waited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    /// All acquisitions.
    pub(crate) all: u64,
    /// Acquisitions that had to wait for another holder.
    pub(crate) contended: u64,
    /// The longest wait.
    pub(crate) longest: Duration,
}

/// An acquisition that takes longer than this counts as contended.
const AT_ONCE: Duration = Duration::from_millis(1);

struct StaysOpen(JoinHandle<()>);

impl Drop for StaysOpen {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The stock and the sales of one item.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) item: &'static str,
    pub(crate) opening: i64,
    pub(crate) sold: i64,
    pub(crate) left: i64,
    /// Why sales failed in their middle. It is not known how far these came.
    pub(crate) unsure: Vec<String>,
}

impl AsRef<Client> for Shop {
    fn as_ref(&self) -> &Client {
        &self.locks
    }
}

impl Shop {
    /// Opens the shop, or joins the processes that already sell from the same stock.
    pub(crate) async fn open(locks: Client, stock: Stock, guarded: bool) -> Result<Self, Failure> {
        locks
            .lock("opening")
            .acquire()
            .try_run(stock.open())
            .await?;
        let kept = stock.clone();
        let stays_open = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(3)).await;
                drop(kept.stay_open().await);
            }
        });
        Ok(Self {
            locks,
            guarded,
            stock,
            orders: Arc::default(),
            waits: Arc::default(),
            _open: Arc::new(StaysOpen(stays_open)),
        })
    }

    pub(crate) async fn close(&self) -> Result<(), Failure> {
        self.locks
            .lock("opening")
            .acquire()
            .try_run(self.stock.close())
            .await
    }

    /// Puts an item into an order and takes it off the stock. A second call for the same order changes nothing, unless the first one has
    /// failed or has gone to another process.
    pub(crate) async fn order(&self, id: u64, item: &str) -> Result<Order, ShopError> {
        if self.guarded {
            self.place(id, item, Instant::now()).await
        } else {
            self.place_unguarded(id, item).await
        }
    }

    /// Locks the order, the stock of the item and its sales, across all processes. The route has already locked the order,
    /// so that key is re-entered.
    #[distributed_lock(keys = ["order:<id>", "stock:<item>", "sales:<item>"], wait = "20s", client = self)]
    async fn place(&self, id: u64, item: &str, asked: Instant) -> Result<Order, ShopError> {
        self.note_wait(asked.elapsed());
        self.place_unguarded(id, item).await
    }

    async fn place_unguarded(&self, id: u64, item: &str) -> Result<Order, ShopError> {
        if let Some(order) = self.orders(|orders| orders.get(&id).cloned()) {
            return Ok(order);
        }
        self.take(item).await?;
        let order = Order {
            item: item.to_owned(),
            paid: false,
        };
        self.orders(|orders| orders.insert(id, order.clone()));
        Ok(order)
    }

    pub(crate) async fn pay(&self, id: u64) -> Result<Order, ShopError> {
        let paid = self.orders(|orders| {
            let order = orders.get_mut(&id)?;
            order.paid = true;
            Some(order.clone())
        });
        paid.ok_or(ShopError::NothingToPay)
    }

    fn note_wait(&self, waited: Duration) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.all += 1;
        waits.contended += u64::from(waited > AT_ONCE);
        waits.longest = waits.longest.max(waited);
    }

    pub(crate) fn waits(&self) -> Waits {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads, sleeps and writes, which is correct only under a lock.
    async fn take(&self, item: &str) -> Result<(), ShopError> {
        let left = self.stock.left(item).await.map_err(ShopError::Stock)?;
        let left = left.ok_or(ShopError::NoSuchItem)?;
        if left <= 0 {
            return Err(ShopError::SoldOut);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        if let Err(error) = self.sell(item, left).await {
            // Still under the lock. If this fails as well, the books cannot explain the difference.
            let _noted = self.stock.note_unsure(item, &error.to_string()).await;
            return Err(ShopError::Stock(error));
        }
        Ok(())
    }

    async fn sell(&self, item: &str, left: i64) -> Result<(), Failure> {
        self.stock.set_left(item, left - 1).await?;
        self.stock.note_sale(item).await
    }

    pub(crate) async fn left(&self, item: &str) -> Result<i64, ShopError> {
        let left = self.stock.left(item).await.map_err(ShopError::Stock)?;
        left.ok_or(ShopError::NoSuchItem)
    }

    /// The stock and the sales of all items. Each item is locked while it is read.
    pub(crate) async fn books(&self) -> Result<Vec<Book>, Failure> {
        let mut books = Vec::new();
        for (item, opening) in OPENING {
            let read = async {
                let (left, sold) = (self.stock.left(item).await?, self.stock.sold(item).await?);
                let unsure = self.stock.unsure(item).await?;
                Ok::<_, Failure>((left.unwrap_or(0), sold, unsure))
            };
            let keys = [format!("stock:{item}"), format!("sales:{item}")];
            let (left, sold, unsure) = self.locks.multi_lock(keys).acquire().try_run(read).await?;
            books.push(Book {
                item,
                opening,
                sold,
                left,
                unsure,
            });
        }
        Ok(books)
    }

    fn orders<T>(&self, look: impl FnOnce(&mut HashMap<u64, Order>) -> T) -> T {
        look(&mut self.orders.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
