//! Which tests play a test body, and where.

/// One `#[test]` for each backend and each of these functions. `.ci/run engines` plays those on a set with Sentinels and on a
/// cluster.
macro_rules! on_every_backend {
    ($($test:ident),* $(,)?) => {
        mod memory { $(#[test] fn $test() { $crate::conformance::stage::memory(super::$test); })* }
        mod redis { $(#[test] fn $test() { $crate::conformance::stage::redis(super::$test); })* }
        mod sentinel {
            $(
                #[test]
                #[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
                fn $test() { $crate::conformance::stage::sentinel(super::$test); }
            )*
        }
        mod cluster {
            $(
                #[test]
                #[ignore = "played by `.ci/run engines`: a cluster takes time"]
                fn $test() { $crate::conformance::stage::cluster(super::$test); }
            )*
        }
    };
}

/// The same over TLS, on a set with Sentinels and on a cluster in every run: for the promises of the plain lock, which show
/// that all is as on one server.
macro_rules! in_every_run {
    ($($test:ident),* $(,)?) => {
        mod in_every_run {
            mod tls { $(#[test] fn $test() { $crate::conformance::stage::tls(super::super::$test); })* }
            mod sentinel { $(#[test] fn $test() { $crate::conformance::stage::sentinel(super::super::$test); })* }
            mod cluster { $(#[test] fn $test() { $crate::conformance::stage::cluster(super::super::$test); })* }
        }
    };
}

/// For tests whose keys one command has to name: on a cluster, all of them are in one slot.
macro_rules! in_one_slot {
    ($($test:ident),* $(,)?) => {
        mod one_slot {
            mod memory { $(#[test] fn $test() { $crate::conformance::stage::memory(super::super::$test); })* }
            mod redis { $(#[test] fn $test() { $crate::conformance::stage::redis(super::super::$test); })* }
            mod sentinel {
                $(
                    #[test]
                    #[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
                    fn $test() { $crate::conformance::stage::sentinel(super::super::$test); }
                )*
            }
            mod cluster {
                $(
                    #[test]
                    #[ignore = "played by `.ci/run engines`: a cluster takes time"]
                    fn $test() { $crate::conformance::stage::cluster_in_one_slot(super::super::$test); }
                )*
            }
        }
    };
}

/// The same on memory, where each key has a slot of its own, as in a cluster: for what acquires several keys.
macro_rules! in_several_slots {
    ($($test:ident),* $(,)?) => {
        mod slots { $(#[test] fn $test() { $crate::conformance::stage::memory_in_slots(super::$test); })* }
    };
}

/// The same on memory with several threads, in real time: for what only a race can show.
macro_rules! on_threads {
    ($($test:ident),* $(,)?) => {
        mod threads { $(#[test] fn $test() { $crate::conformance::stage::threads(super::$test); })* }
    };
}
