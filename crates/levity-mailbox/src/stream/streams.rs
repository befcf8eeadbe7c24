//! How an event loop asks for streams.

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::protocol::StreamError;
use crate::budget::Budget;
use crate::copies::Copies;
use crate::name::Name;
use crate::protocol::Command;
use crate::settings::Settings;
use crate::store::StoreError;

/// The event of a message that closes its stream.
pub(super) const CLOSED: &str = "closed";

/// The streams of a set, as an event loop asks for them. Futures end when the owner answers, or has ended.
#[derive(Clone)]
pub struct Streams {
    pub(super) copies: Rc<Copies>,
    pub(super) settings: Arc<Settings>,
    pub(super) budget: Arc<Budget>,
}

impl Streams {
    /// The streams of the set of `settings`, which [keeps all](Settings::keeps_all). Content takes memory of `budget`.
    #[must_use]
    pub fn new(copies: &Rc<Copies>, settings: &Arc<Settings>, budget: &Arc<Budget>) -> Self {
        Self {
            copies: copies.clone(),
            settings: settings.clone(),
            budget: budget.clone(),
        }
    }

    /// What the owner of a stream answers.
    pub(super) async fn ask<T>(
        &self,
        name: &Name,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, StreamError> {
        let owner = self.copies.owner_of_stream(name);
        let answer = self.copies.ask(owner, command).await;
        answer.map_err(|_| StoreError::Unavailable("the store has ended".to_owned()).into())
    }

    /// Removes a stream, unless it is in another life by now.
    pub(super) async fn remove_life(&self, name: &Name, epoch: u64) -> Result<(), StreamError> {
        let remove = |reply| Command::Remove {
            name: name.clone(),
            epoch: Some(epoch),
            reply,
        };
        self.ask(name, remove).await??;
        Ok(())
    }
}
