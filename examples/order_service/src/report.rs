//! Prints what happened, and whether the stock and the sales add up.

use crate::drive::Seen;
use crate::shop::{Book, Waits};

/// Prints the result, and returns whether nothing was oversold and no sale was lost.
pub(crate) fn print(seen: &Seen, waits: Waits, books: &[Book]) -> bool {
    println!(
        "customers: {} served, {} found it sold out; requests: {} busy, {} failed; took {:.2?}",
        seen.served, seen.refused, seen.busy, seen.failed, seen.took
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
    let right = books.iter().all(Book::is_right) && seen.failed == 0;
    println!(
        "{}",
        if right {
            "check passed: nothing was oversold"
        } else {
            "check failed"
        }
    );
    right
}

impl Book {
    fn is_right(&self) -> bool {
        self.left >= 0 && self.sold <= self.opening && self.sold + self.left == self.opening
    }

    fn verdict(&self) -> &'static str {
        if self.sold > self.opening {
            "  <- oversold"
        } else if !self.is_right() {
            "  <- sales and stock do not add up"
        } else {
            ""
        }
    }
}
