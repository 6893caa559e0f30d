//! A seller in Rust. `bash examples/with_redisson/run` starts it beside sellers in Java: together they sell one stock.
//!
//! A sale reads the stock, works, and writes what is left, so two sales at once would sell one packet twice.

use std::time::Duration;

use clap::Parser;
use distlock::Client;
use distlock_examples::{Failure, check};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;

/// The lock: a fair one, so that the sellers take turns. Those in Java call it by the same name.
const LOCK: &str = "example:tea:lock";

/// How many packets are left.
const STOCK: &str = "example:tea";

/// Who has sold how many.
const SOLD: &str = "example:tea:sold";

#[derive(Debug, Parser)]
struct Args {
    /// The Redis that has the stock and the lock
    redis: String,
    /// The name of this seller, or none to print who has sold what
    seller: Option<String>,
    /// How many packets there were
    #[arg(long, default_value_t = 0)]
    of: u64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let redis = redis::Client::open(args.redis.as_str())?;
    let mut shop = redis.get_multiplexed_async_connection().await?;
    let Some(seller) = args.seller else {
        return report(&mut shop, args.of).await;
    };
    let client = Client::connect(&args.redis).await?;
    let lock = client.fair_lock(LOCK);
    while lock.acquire().run(sell(&mut shop, &seller)).await?? {}
    Ok(())
}

/// Sells a packet. Returns whether there was one.
async fn sell(shop: &mut MultiplexedConnection, seller: &str) -> Result<bool, redis::RedisError> {
    let left: u64 = shop.get(STOCK).await?;
    if left == 0 {
        return Ok(false);
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let () = shop.set(STOCK, left - 1).await?;
    let () = shop.hincr(SOLD, seller, 1).await?;
    Ok(true)
}

async fn report(shop: &mut MultiplexedConnection, of: u64) -> Result<(), Failure> {
    let mut sold: Vec<(String, u64)> = shop.hgetall(SOLD).await?;
    sold.sort();
    for (seller, packets) in &sold {
        println!("{seller:<8} {packets:>4} packets");
    }
    let all: u64 = sold.iter().map(|(_, packets)| packets).sum();
    check(
        all == of,
        &format!("{all} packets of {of} were sold: oversold"),
    )?;
    println!("{all} of {of} packets were sold, and none twice");
    Ok(())
}
