//! TXT records for challenges of the type `dns-01` (RFC 8555, section 8.4).

mod exchange;
mod hook;
mod key;
mod update;
mod visible;

pub use hook::Hook;
pub use key::{Algorithm, TsigKey};
pub use update::Update;

/// How records of challenges come into the DNS, and out of it.
#[derive(Clone, Debug)]
pub enum Dns {
    /// By a program of the operator.
    Hook(Hook),
    /// By dynamic updates.
    Update(Update),
}

impl Dns {
    /// Adds the TXT record `name` with `value`, and waits until it is visible. `name` is the full name without the dot
    /// at its end. Other values of the same name stay: those of a name and of its wildcard are needed at the same time.
    ///
    /// # Errors
    /// In words. The record may then exist nevertheless.
    pub async fn set(&self, name: &str, value: &str) -> Result<(), String> {
        match self {
            Self::Hook(hook) => hook.set(name, value).await,
            Self::Update(update) => update.set(name, value).await,
        }
    }

    /// Removes the TXT record `name` with `value`. It is no error if there is none.
    ///
    /// # Errors
    /// In words.
    pub async fn remove(&self, name: &str, value: &str) -> Result<(), String> {
        match self {
            Self::Hook(hook) => hook.remove(name, value).await,
            Self::Update(update) => update.remove(name, value).await,
        }
    }
}
