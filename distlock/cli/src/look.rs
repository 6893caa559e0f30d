//! A look at many keys, which leaves half of the server's time to others.

use std::collections::HashSet;
use std::time::Duration;

use distlock::{Client, Error, KeyReport, Scan};
use tokio::time::{Instant, sleep};

use crate::args::Looked;

/// How many keys of the server a page goes through: a server needs less than a millisecond for them.
const PAGE: u32 = 500;

/// A look at the keys under a pattern, page by page.
pub(crate) struct Look {
    scan: Scan,
    /// What was found so far. A server may name a key twice while its table grows.
    found: HashSet<String>,
    limit: usize,
    most_keys: u64,
    /// How long the last page took, and so how long the next one waits.
    rest: Duration,
}

impl Look {
    pub(crate) fn new(client: &Client, args: &Looked, limit: usize) -> Self {
        let scan = client.scan(&*args.pattern).page_size(PAGE);
        Self {
            scan: if args.all { scan } else { scan.skip_numbers() },
            found: HashSet::new(),
            limit,
            most_keys: args.max_keys,
            rest: Duration::ZERO,
        }
    }

    /// The next locks that were found, by key. `None` at the end, and when enough was found or looked at.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<KeyReport>>, Error> {
        if self.end().is_cut() {
            return Ok(None);
        }
        sleep(self.rest).await;
        let started = Instant::now();
        let page = self.scan.next_page().await?;
        self.rest = started.elapsed();
        Ok(page.map(|mut page| {
            // One more than is shown tells that there are more.
            page.retain(|report| {
                self.found.len() <= self.limit && self.found.insert(report.key.clone())
            });
            if self.found.len() > self.limit {
                page.pop();
            }
            page
        }))
    }

    /// How far it has come.
    pub(crate) fn end(&self) -> End {
        let looked_at = self.scan.looked_at();
        if self.found.len() > self.limit {
            End::Limit
        } else if looked_at >= self.most_keys {
            End::MostKeys(looked_at)
        } else {
            End::Over
        }
    }
}

/// Why a look has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All keys were looked at.
    Over,
    /// There are more locks than were asked for.
    Limit,
    /// So many keys were looked at, and there may be more.
    MostKeys(u64),
}

impl End {
    /// Whether there may be more locks.
    pub(crate) fn is_cut(self) -> bool {
        self != Self::Over
    }
}
