//! What lies in the server: names, values, expiry times and messages, as Redisson has them, and what the scripts cost there.

mod commands;
mod expire_after;
mod fair;
mod force_release;
mod golden;
mod guide_scripts;
mod latch;
mod permit;
mod report;
mod rw;
mod semaphore;
mod slots;
mod undeclared;
mod wire;
