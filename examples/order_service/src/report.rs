//! Prints what happened, and whether the stock and the sales add up.

use std::collections::BTreeSet;

use crate::drive::Seen;
use crate::shop::{Book, Waits};

/// Prints the result, and returns whether nothing was oversold and no sale was lost.
pub(crate) fn print(seen: &Seen, waits: Waits, books: &[Book]) -> bool {
    println!(
        "customers: {} served, {} found it sold out; requests: {} busy, {} failed; took {:.2?}",
        seen.served,
        seen.refused,
        seen.busy,
        seen.failed.values().sum::<u64>(),
        seen.took
    );
    println!(
        "stock locks: {} acquired, {} contended, longest wait {:.2?}; slowest request {:.2?}",
        waits.all, waits.contended, waits.longest, seen.longest
    );
    println!("{:<8} {:>8} {:>8} {:>8}", "item", "opening", "sold", "left");
    for book in books {
        println!(
            "{:<8} {:>8} {:>8} {:>8}{}",
            book.item,
            book.opening,
            book.sold,
            book.left,
            book.verdict()
        );
    }
    let unsure = books.iter().flat_map(|book| &book.unsure);
    for reason in unsure.collect::<BTreeSet<_>>() {
        println!("a sale failed in its middle: {reason}");
    }
    for (reason, times) in &seen.failed {
        println!("{times} requests failed: {reason}");
    }
    let is_right = books.iter().all(Book::is_right);
    // A failed request is nobody's item. If nobody was served, nothing was tried.
    let is_tried = seen.served + seen.refused > 0;
    println!(
        "{}",
        match (is_right, is_tried) {
            (true, true) => "check passed: nothing was oversold",
            (true, false) => "check failed: no customer was served",
            (false, _) => "check failed",
        }
    );
    is_right && is_tried
}

impl Book {
    /// Nothing was oversold, and each difference between sales and stock is explained by a sale that failed in its middle.
    fn is_right(&self) -> bool {
        let missing = self.opening - self.sold - self.left;
        let unsure = i64::try_from(self.unsure.len()).unwrap_or(i64::MAX);
        self.left >= 0 && self.sold <= self.opening && missing.abs() <= unsure
    }

    fn verdict(&self) -> String {
        if self.sold > self.opening || self.left < 0 {
            "  <- oversold".to_owned()
        } else if !self.is_right() {
            "  <- sales and stock do not add up".to_owned()
        } else if !self.unsure.is_empty() {
            format!("  {} sales failed in their middle", self.unsure.len())
        } else {
            String::new()
        }
    }
}
