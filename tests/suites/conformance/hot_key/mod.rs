//! Keys that are wanted by many clients all the time: who gets what share.

mod fairness;
mod other_library;
