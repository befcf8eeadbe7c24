//! What only the journal has to keep: after crashes, with wrong bytes, on a full disk and a failing one, and in bounds.

mod crashing;
mod cutting;
mod failing;
mod full;
mod harness;
mod killing;
mod many;
mod tidying;
