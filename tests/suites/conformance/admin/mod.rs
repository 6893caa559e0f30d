//! What operators see of a server, and do to its keys.

mod force_release;
mod report;
mod scan;
