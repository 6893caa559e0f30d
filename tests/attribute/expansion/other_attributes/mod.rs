//! Functions with other attributes: those of `async_trait`, axum, `tokio::main` and `tracing`, and a second lock.

pub mod async_trait;
pub mod attributes;
pub mod debug_handler;
pub mod instrument;
pub mod tokio_main;
pub mod two_attributes;

use super::{ok, run};
