#![deny(unused_must_use)]

use distlock::{Client, Quorum};

fn handles_that_hold_nothing(client: &Client, quorum: &Quorum) {
    client.lock("order:42");
    client.fenced_lock("order:42");
    client.rw_lock("report:42");
    client.rw_lock("report:42").read();
    client.multi_lock(["order:42", "stock:7"]);
    quorum.lock("order:42");
    client.semaphore("printers");
    client.expirable_semaphore("seats");
    client.count_down_latch("import:parts");
    client.leader("invoices");
}

fn main() {}
