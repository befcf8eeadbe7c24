//! The process: start, signals, reload and end, and what it gives up, says and is asked meanwhile.
//!
//! Control, the main thread, starts whatever may block before any worker: the guard of the tests is
//! a seccomp filter, and threads inherit it.
//!
//! A mount that does not answer keeps no server from starting. Calls on files at a start, a check
//! and a reload, and on files of certificates later, go through `patiently` of `levity-disk`. A
//! location whose root or secrets do not respond, or whose root is absent at a start, is closed
//! (`handler/gate/closed.rs`, 503); the handshakes of a site without its certificates are refused;
//! a log is opened by its own thread later. When a call returns late, or an absent root can be
//! opened, the control thread makes a configuration that is not complete again, of the text that it
//! had (`begin_if_late` in `server/reloading.rs`). A signal during the start ends the process, which
//! joins none of these threads.
//!
//! Workers share the disk, the shared cache, the log channels and an immutable `Service`. A reload
//! makes a new one, which takes over the health of backends and the store of preloaded content.
//! Limits on all workers together, such as that on receipts in flight, are counters
//! (`loop_core/limit.rs`). A reload that fails has changed nothing: `swap` does everything that can
//! fail first.
//!
//! In a drain no event loop ends before all have drained (`serve/event_loop.rs`): the last requests
//! at one loop need mailboxes that another owns. A loop drains before it accepts what its listeners
//! have left: the idle connections then leave their places to them.

pub mod admin;
pub mod confinement;
pub mod descriptors;
pub mod explain;
mod left_by_root;
pub mod log_writers;
pub mod plan;
pub mod reload;
pub mod server;
pub mod service_manager;
pub mod signals;
pub mod start_report;
pub mod system_limits;
