//! Tests of the attribute `#[distributed_lock]`, and of the examples in its documentation.

/// Runs the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../distlock-macros/README.md")]
struct Readme;

/// Runs the examples of the attribute's documentation as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../distlock-macros/docs/distributed_lock.md")]
struct DistributedLock;
