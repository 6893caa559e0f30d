//! One clock for all processes.

/// The machine's monotonic clock in nanoseconds.
pub(super) fn now() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
