//! A client that ends, changes its identity, or outlives its runtime.

mod close;
mod identity;
mod runtime;
