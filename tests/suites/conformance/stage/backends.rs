//! Which tests play a test body, and where.

/// One `#[test]` on memory, in paused time, for each of these functions.
macro_rules! on_memory {
    ($($test:ident),* $(,)?) => {
        mod memory {
            $(#[test] fn $test() { $crate::conformance::stage::memory(|stage| Box::pin(super::$test(stage))); })*
        }
    };
}

/// One `#[test]` for each backend and each of these functions. `.ci/run engines` plays those on a set with Sentinels and on a
/// cluster.
macro_rules! on_every_backend {
    ($($test:ident),* $(,)?) => {
        on_memory!($($test),*);
        mod redis { $(#[test] fn $test() { $crate::conformance::stage::redis(|stage| Box::pin(super::$test(stage))); })* }
        mod sentinel {
            $(
                #[test]
                #[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
                fn $test() { $crate::conformance::stage::sentinel(|stage| Box::pin(super::$test(stage))); }
            )*
        }
        mod cluster {
            $(
                #[test]
                #[ignore = "played by `.ci/run engines`: a cluster takes time"]
                fn $test() { $crate::conformance::stage::cluster(|stage| Box::pin(super::$test(stage))); }
            )*
        }
    };
}

/// The same over TLS, on a set with Sentinels and on a cluster in every run: for the promises of the plain lock, which show
/// that all is as on one server.
macro_rules! in_every_run {
    ($($test:ident),* $(,)?) => {
        mod in_every_run {
            mod tls { $(#[test] fn $test() { $crate::conformance::stage::tls(|stage| Box::pin(super::super::$test(stage))); })* }
            mod sentinel { $(#[test] fn $test() { $crate::conformance::stage::sentinel(|stage| Box::pin(super::super::$test(stage))); })* }
            mod cluster { $(#[test] fn $test() { $crate::conformance::stage::cluster(|stage| Box::pin(super::super::$test(stage))); })* }
        }
    };
}

/// On every backend, and [`in_every_run`].
macro_rules! on_every_backend_and_in_every_run {
    ($($test:ident),* $(,)?) => {
        on_every_backend!($($test),*);
        in_every_run!($($test),*);
    };
}

/// For tests whose keys one command has to name: on a cluster, all of them are in one slot.
macro_rules! in_one_slot {
    ($($test:ident),* $(,)?) => {
        mod one_slot {
            mod memory { $(#[test] fn $test() { $crate::conformance::stage::memory(|stage| Box::pin(super::super::$test(stage))); })* }
            mod redis { $(#[test] fn $test() { $crate::conformance::stage::redis(|stage| Box::pin(super::super::$test(stage))); })* }
            mod sentinel {
                $(
                    #[test]
                    #[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
                    fn $test() { $crate::conformance::stage::sentinel(|stage| Box::pin(super::super::$test(stage))); }
                )*
            }
            mod cluster {
                $(
                    #[test]
                    #[ignore = "played by `.ci/run engines`: a cluster takes time"]
                    fn $test() { $crate::conformance::stage::cluster_in_one_slot(|stage| Box::pin(super::super::$test(stage))); }
                )*
            }
        }
    };
}

/// The same on memory, where each key has its own slot, as in a cluster: for acquisitions of several keys.
macro_rules! in_several_slots {
    ($($test:ident),* $(,)?) => {
        mod slots { $(#[test] fn $test() { $crate::conformance::stage::memory_in_slots(|stage| Box::pin(super::$test(stage))); })* }
    };
}

/// On every backend, and [`in_several_slots`].
macro_rules! on_every_backend_and_in_several_slots {
    ($($test:ident),* $(,)?) => {
        on_every_backend!($($test),*);
        in_several_slots!($($test),*);
    };
}

/// The same on memory with several threads, in real time: for what only a race can show.
macro_rules! on_threads {
    ($($test:ident),* $(,)?) => {
        mod threads { $(#[test] fn $test() { $crate::conformance::stage::threads(|stage| Box::pin(super::$test(stage))); })* }
    };
}
