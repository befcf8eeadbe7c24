//! What is known of a certificate besides itself.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Log;
use crate::folder::Folder;

/// Everything about a name that has to outlive a restart.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// The directory of the authority that has issued the certificate.
    pub directory: Option<String>,
    /// An order that has not ended.
    pub order: Option<Pending>,
    /// When the certificate is to be renewed, in seconds since 1970.
    pub renew_at: Option<u64>,
    /// When the authority is to be asked again for a better time.
    pub ask_at: Option<u64>,
    /// The attempts that have failed since the last certificate.
    pub failures: u32,
    /// Why the last one has.
    pub last_error: Option<String>,
    /// Before this time there is no other one.
    pub not_before: Option<u64>,
}

/// An order that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The directory of the authority.
    pub directory: String,
    /// The URL of the order, once the authority has named it.
    pub url: Option<String>,
    /// The key of the certificate, as PEM.
    pub key: String,
}

impl State {
    /// That of `name`. One that cannot be read is logged, and begins anew. Blocks.
    #[must_use]
    pub fn load(folder: &Folder, name: &str, log: Log) -> Self {
        Self::read(&folder.state(name)).unwrap_or_else(|reason| {
            log(format_args!(
                "the state of the certificate for {name} is lost: {reason}"
            ));
            Self::default()
        })
    }

    /// The same from a file, which need not be there. Blocks.
    ///
    /// # Errors
    /// In words, with the path.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        if path.try_exists().is_ok_and(|exists| !exists) {
            return Ok(Self::default());
        }
        let bytes = levity_tls::files::read(path)?;
        let state = serde_json::from_slice(&bytes);
        state.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes it. Blocks.
    ///
    /// # Errors
    /// In words, with the path.
    pub fn save(&self, folder: &Folder, name: &str) -> Result<(), String> {
        let text = serde_json::to_vec_pretty(self).map_err(|error| error.to_string())?;
        folder.write(&folder.state(name), &text)
    }
}
