//! One backend: an address, and whether it is well.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::address::Address;
use crate::config::upstream;

/// A backend, shared by all workers.
#[derive(Debug)]
pub struct Backend {
    /// Where it is.
    pub address: Address,
    /// The same for the same address, in every process and after every reload.
    pub id: u64,
    /// Its share of requests.
    pub weight: u32,
    /// It is asked only when all others are down.
    pub backup: bool,
    /// It gets no new clients.
    pub drain: bool,
}

impl Backend {
    /// The backend at `address`, otherwise as `entry` says.
    pub fn new(address: Address, entry: &upstream::Backend) -> Self {
        let mut hasher = DefaultHasher::new();
        address.to_string().hash(&mut hasher);
        Self {
            address,
            id: hasher.finish(),
            weight: entry.weight,
            backup: entry.backup,
            drain: entry.drain,
        }
    }
}
