//! Memory for file bytes, which is bounded, aligned and reused, and other memory that safe code cannot have.

pub(crate) mod arena;
mod block;
mod budget;
mod buffer;
mod cache_lines;
mod pages;
pub(crate) mod registered;
mod spare;

pub use block::ALIGNMENT;
pub use budget::Budget;
pub(crate) use budget::{Reservation, span};
pub use buffer::Buffer;
pub use cache_lines::{CacheLine, CacheLines};
pub use pages::Pages;
pub use spare::{Placed, SpareMemory};
