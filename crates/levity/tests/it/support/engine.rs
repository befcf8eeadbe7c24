//! Running one test on every disk engine.

use std::sync::OnceLock;

use levity_disk::engine::{AUTO, find};

use super::{Launch, Tree};

/// Makes a module for each test function with one test in it per engine, such as `range_single::io_uring`.
macro_rules! per_engine {
    ($($functions:tt)+) => {
        $crate::support::per_engine_that_waits_elsewhere! {
            and (sendfile = "sendfile", simulated = "simulated")
            $($functions)+
        }
    };
}
pub(crate) use per_engine;

/// The same without engines that may stall, but for those that are named.
macro_rules! per_engine_that_waits_elsewhere {
    (
        and $others:tt
        $($(#[$meta:meta])* fn $name:ident($engine:ident) $body:block)+
    ) => {$(
        $(#[$meta])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn on($engine: &str) $body

            $crate::support::engine_tests!(
                threads = "threads",
                io_uring = "io_uring",
                linux_aio = "linux-aio",
                readahead = "readahead",
                posix_aio = "posix-aio",
                auto = "auto"
            );
            $crate::support::engine_tests! $others;
        }
    )+};
    ($($functions:tt)+) => {
        $crate::support::per_engine_that_waits_elsewhere! { and () $($functions)+ }
    };
}
pub(crate) use per_engine_that_waits_elsewhere;

/// One test per engine, each a call of `on`.
macro_rules! engine_tests {
    ($($name:ident = $engine:literal),*) => {$(
        #[test]
        fn $name() {
            if $crate::support::can_run($engine) {
                on($engine);
            }
        }
    )*};
}
pub(crate) use engine_tests;

/// Whether an engine can run here. A build may lack it, a kernel two of them, or a container forbid them.
pub fn can_run(engine: &str) -> bool {
    let is_built = engine == AUTO || find(engine).is_some();
    is_built
        && match engine {
            "io_uring" => ring_works(),
            "linux-aio" => linux_aio_works(),
            _ => true,
        }
}

/// Whether `io_uring` can run here: containers often forbid it. In CI it must.
pub fn ring_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| works("io_uring"))
}

/// Whether `linux-aio` can run here: a kernel may be built without it. In CI it must.
pub fn linux_aio_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| works("linux-aio"))
}

fn works(engine: &str) -> bool {
    std::env::var_os("CI").is_some() || tried(engine)
}

fn tried(engine: &str) -> bool {
    let tree = Tree::new();
    let started = Launch::serve(tree.path()).engine(engine).try_start();
    if let Err(stderr) = &started {
        eprintln!("{engine} is left out: {stderr}");
        assert!(stderr.contains("cannot run here"), "{stderr}");
    }
    started.is_ok()
}
