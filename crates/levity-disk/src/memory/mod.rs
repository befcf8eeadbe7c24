//! Memory for file bytes: bounded, aligned and reused.

pub(crate) mod arena;
mod block;
mod budget;
mod buffer;
mod cache_lines;
mod pages;
pub(crate) mod registered;

pub use block::ALIGNMENT;
pub use budget::Budget;
pub(crate) use budget::{Reservation, span};
pub use buffer::Buffer;
pub use cache_lines::{CacheLine, CacheLines};
pub use pages::Pages;
