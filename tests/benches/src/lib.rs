//! What the benches share. See `attribute.rs`, `layer.rs` and `lock/main.rs` beside this folder for what they measure.

mod table;

pub use table::{Row, Table};

/// Sorts the figures of all rounds. Returns the lower quartile, the median and the upper quartile.
pub fn quartiles(mut rounds: Vec<f64>) -> [f64; 3] {
    rounds.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarters| rounds[(rounds.len() - 1) * quarters / 4])
}
