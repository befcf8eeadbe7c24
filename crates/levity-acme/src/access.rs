//! What is known of an authority while the server runs.

use std::sync::Arc;

use instant_acme::Account;
use tokio::sync::Mutex;

use crate::Log;
use crate::reach::Reach;
use crate::settings::Authority;

/// What is known of an authority.
pub struct Access {
    /// Whether it can be reached.
    pub reach: Arc<Reach>,
    /// The account in use. Whoever wants one waits while the authority is asked for it.
    pub account: Mutex<Option<Account>>,
}

impl Access {
    /// Nothing is known.
    pub fn new(authority: &Authority, log: Log) -> Self {
        Self {
            reach: Arc::new(Reach::new(authority.host(), log)),
            account: Mutex::default(),
        }
    }
}
