//! Rate limits: how much a client, a file or a route may take, exact across all workers.
//!
//! - *The table* (`table.rs`) has the state of all limits, and all workers share it without a lock,
//!   so that counts are exact. A slot is 16 bytes: a hash of limit and client, file or nothing,
//!   keyed at random so that no client can choose its slot, and one atomic number. That is the
//!   theoretical arrival time of the generic cell rate algorithm (ITU-T I.371), changed by
//!   compare-and-exchange, or a count of concurrent requests. A time that has passed says nothing,
//!   so its slot is free: nothing is ever cleaned up. A key has two places of 8 slots. If all 16
//!   are in use, the one whose time passes first is forgotten.
//! - *Requests* are counted at the time that their trace has anyway. `Charges` holds what a request
//!   has taken from up to 8 limits without an allocation: a limit counts it once, however often it
//!   is rewritten; a refusal gives everything back; its drop ends the concurrent ones.
//! - *Bytes* are reserved before they are read or received. A response that has to wait has a place
//!   in the order of its key, and waits by the timer of its connection without a buffer. Because
//!   that timer is up to 0.1 s late, a key may always take what its rate brings in 0.25 s. What was
//!   reserved and not sent is given back. Throttled bodies of backends are not spliced, and the
//!   thread `send` gets as much as was reserved.
//! - *Figures*: hits are one counter per limit, because they are rare. Requests that pass are
//!   counted in shares of a cache line per thread (`sharded_count.rs`). The control thread counts
//!   the keys, or estimates their number from 1 MiB of the table if there are many. An event loop
//!   logs the first hit of 10 s; the control thread logs the rest, because no other hit may follow.
//! - *A reload* finds limits that did not change in the `Registry`, by their settings and the site
//!   or route they stand in.

pub mod charges;
pub mod limit;
pub mod registry;
mod sharded_count;
pub mod table;
