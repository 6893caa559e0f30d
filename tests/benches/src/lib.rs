//! What the benches share. See `attribute.rs`, `layer.rs`, `lock/main.rs` and `scale/main.rs` beside this folder for
//! what they measure.

pub mod bare;
mod table;

pub use table::{Row, Table, short};

/// Sorts the figures of all rounds. Returns the lower quartile, the median and the upper quartile. One that is between two
/// figures is interpolated.
pub fn quartiles(mut rounds: Vec<f64>) -> [f64; 3] {
    rounds.sort_by(f64::total_cmp);
    [0.25, 0.5, 0.75].map(|share| {
        let place = share * (rounds.len() - 1) as f64;
        let below = rounds[place.floor() as usize];
        below + (rounds[place.ceil() as usize] - below) * place.fract()
    })
}
