//! A process that locks, for tests that stop and kill it: told by lines what to do, it answers by lines.
//!
//! `holder URL WATCHDOG_MS`, then on standard input:
//!
//! | line | answer |
//! | --- | --- |
//! | `acquire KEY [WAIT_MS]` | `granted NS OWNER`, or `failed TEXT` |
//! | `fair KEY [WAIT_MS]` | the same, of a fair lock |
//! | `token KEY` | `token N`, of a fenced lock that it took and released |
//! | `release` | `released NS`, or `failed TEXT` |
//! | `lost` | `lost NS`, when it is |
//! | `scope` | `inside`, and `failed TEXT` when the scope is cut |
//! | `write` | `wrote NS` inside of the scope, else `outside` |
//! | `hammer KEY MS [TASKS]` | `done GRANTS`, after that many tasks have acquired and released for this long |
//! | `readers KEY MS TASKS MOST_MS` | `done PAIRS`, after that many readers have come and gone for this long, each for up to `MOST_MS` |
//! | `id` | `id UUID`, of its client |
//! | `crowd N PREFIX` | `waiting`, when N tasks wait for N keys |
//!
//! `NS` is the machine's monotonic clock in nanoseconds, the same for all processes. The end of the input ends it.

use std::time::{Duration, Instant};

use distlock::{Acquire, Client, Error, Guard};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};
use tokio::task::JoinSet;

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

fn millis(text: &str) -> Duration {
    Duration::from_millis(text.parse().expect("milliseconds"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let url = args.next().expect("the server's URL");
    let watchdog = args
        .next()
        .map_or(Duration::from_secs(30), |text| millis(&text));
    let client = Client::builder()
        .watchdog_timeout(watchdog)
        .connect(&url)
        .await?;
    let mut holder = Holder {
        client,
        guard: None,
    };
    let mut lines = BufReader::new(stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            ["scope"] => holder.scope(&mut lines).await,
            _ => holder.obey(&words).await,
        };
        println!(
            "{}",
            answer.unwrap_or_else(|error| format!("failed {error}"))
        );
    }
    Ok(())
}

struct Holder {
    client: Client,
    guard: Option<Guard>,
}

impl Holder {
    async fn obey(&mut self, words: &[&str]) -> Result<String, Error> {
        match words {
            ["acquire", key] => self.acquire(self.client.lock(*key).acquire()).await,
            ["acquire", key, wait] => {
                let acquire = self.client.lock(*key).acquire();
                self.acquire(acquire.wait(millis(wait))).await
            }
            ["fair", key] => self.acquire(self.client.fair_lock(*key).acquire()).await,
            ["fair", key, wait] => {
                let acquire = self.client.fair_lock(*key).acquire();
                self.acquire(acquire.wait(millis(wait))).await
            }
            ["token", key] => self.token(key).await,
            ["write"] => Ok(String::from("outside")),
            ["release"] => self.release().await,
            ["lost"] => Ok(self.lost().await),
            ["hammer", key, time] => self.hammer(key, millis(time), 1).await,
            ["hammer", key, time, tasks] => {
                let tasks = tasks.parse().expect("a number");
                self.hammer(key, millis(time), tasks).await
            }
            ["readers", key, time, tasks, most] => {
                let tasks = tasks.parse().expect("a number");
                self.readers(key, millis(time), tasks, millis(most)).await
            }
            ["id"] => Ok(format!("id {}", self.client.id())),
            ["crowd", tasks, prefix] => Ok(self.crowd(tasks.parse().expect("a number"), prefix)),
            other => panic!("unknown line {other:?}"),
        }
    }

    async fn acquire(&mut self, acquire: Acquire) -> Result<String, Error> {
        let guard = acquire.await?;
        let answer = format!("granted {} {}", now(), guard.owner());
        self.guard = Some(guard);
        Ok(answer)
    }

    async fn token(&self, key: &str) -> Result<String, Error> {
        let guard = self.client.fenced_lock(key).acquire().await?;
        let token = guard.token();
        guard.release().await?;
        Ok(format!("token {token}"))
    }

    async fn release(&mut self) -> Result<String, Error> {
        self.guard.take().expect("a guard").release().await?;
        Ok(format!("released {}", now()))
    }

    async fn lost(&self) -> String {
        self.guard.as_ref().expect("a guard").lost().await;
        format!("lost {}", now())
    }

    async fn scope(&self, lines: &mut Lines<BufReader<Stdin>>) -> Result<String, Error> {
        let body = async {
            println!("inside");
            while let Ok(Some(_)) = lines.next_line().await {
                // A scope compares the clock before each poll of its body. A process that was stopped in the middle of
                // one may find the line there at once.
                tokio::task::yield_now().await;
                println!("wrote {}", now());
            }
        };
        self.guard.as_ref().expect("a guard").scope(body).await?;
        Ok(String::from("left"))
    }

    async fn hammer(&self, key: &str, time: Duration, tasks: usize) -> Result<String, Error> {
        let start = Instant::now();
        let mut hammering = JoinSet::new();
        for _ in 0..tasks {
            let lock = self.client.lock(key);
            hammering.spawn(async move {
                let mut grants = 0_u64;
                while start.elapsed() < time {
                    lock.acquire().run(tokio::task::yield_now()).await?;
                    grants += 1;
                }
                Ok::<u64, Error>(grants)
            });
        }
        let mut grants = 0;
        while let Some(done) = hammering.join_next().await {
            grants += done.expect("no panic")?;
        }
        Ok(format!("done {grants}"))
    }

    async fn readers(
        &self,
        key: &str,
        time: Duration,
        tasks: u32,
        most: Duration,
    ) -> Result<String, Error> {
        let start = Instant::now();
        let mut reading = JoinSet::new();
        for task in 0..tasks {
            let lock = self.client.rw_lock(key).read();
            reading.spawn(async move {
                let mut pairs = 0_u32;
                while start.elapsed() < time {
                    let guard = lock.acquire().await?;
                    // Every length up to the longest, in another order for each of them.
                    let part = (task * 37 + pairs * 41) % 100;
                    tokio::time::sleep(most * part / 100).await;
                    guard.release().await?;
                    pairs += 1;
                }
                Ok::<u32, Error>(pairs)
            });
        }
        let mut pairs = 0;
        while let Some(done) = reading.join_next().await {
            pairs += done.expect("no panic")?;
        }
        Ok(format!("done {pairs}"))
    }

    fn crowd(&self, tasks: usize, prefix: &str) -> String {
        for n in 0..tasks {
            let acquire = self.client.lock(format!("{prefix}{n}")).acquire();
            tokio::spawn(async move { drop(acquire.await) });
        }
        String::from("waiting")
    }
}
