//! Running one test on every disk engine.

use std::sync::OnceLock;

use super::{Launch, Tree};

/// Makes a module for each test function with one test per engine in it, such as
/// `range_single::io_uring`.
macro_rules! per_engine {
    ($($(#[$meta:meta])* fn $name:ident($engine:ident) $body:block)+) => {$(
        $(#[$meta])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn on($engine: &str) $body

            #[test]
            fn threads() {
                on("threads");
            }

            #[test]
            fn io_uring() {
                if $crate::support::ring_works() {
                    on("io_uring");
                }
            }

            #[test]
            fn linux_aio() {
                if $crate::support::linux_aio_works() {
                    on("linux-aio");
                }
            }

            #[test]
            fn readahead() {
                on("readahead");
            }

            #[test]
            fn posix_aio() {
                on("posix-aio");
            }

            #[test]
            fn sendfile() {
                on("sendfile");
            }

            #[test]
            fn auto() {
                on("auto");
            }

            #[test]
            fn simulated() {
                on("simulated");
            }
        }
    )+};
}
pub(crate) use per_engine;

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
