//! Recipes: short programs for what services lock most often, each with a test of what happens.
//!
//! | file | what it shows |
//! | --- | --- |
//! | [`keys`] | one request at a time for each header, value of a JSON body, user or tenant |
//! | [`nightly_apalis`], [`nightly_cron`] | a job of a scheduler that one replica runs per fire, and what happens when that replica crashes or shuts down |
//! | [`fenced_transaction`] | an SQLx transaction whose commit a newer holder of the lock makes fail |
//! | [`idempotency_key`] | a request that clients may send again, and that is carried out once |
//! | [`used_once`] | semaphores and latches that clean up after themselves |
//! | [`from_set_nx`] | from locks made of `SET NX` on one server to those of this crate, without a stop |
//!
//! `compose.yaml`, in the folder above, starts two replicas with Redis, Prometheus and Grafana.

pub mod fenced_transaction;
pub mod from_set_nx;
pub mod idempotency_key;
pub mod keys;
pub mod nightly_apalis;
pub mod nightly_cron;
pub mod used_once;

#[cfg(test)]
mod compose;

/// Any error. Attributes need one that an error of a lock can become.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
