//! Folders without links.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::root::resolved;

/// Folders by their paths in the configuration.
pub(super) struct Folders<'a> {
    /// As for [`resolved`].
    pub(super) may_look_up: bool,
    known: HashMap<&'a Path, Arc<Path>>,
}

impl<'a> Folders<'a> {
    pub(super) fn new(may_look_up: bool) -> Self {
        Self {
            may_look_up,
            known: HashMap::new(),
        }
    }

    pub(super) fn get(&mut self, path: &'a Path) -> Arc<Path> {
        let resolved = || resolved(path, self.may_look_up).into();
        self.known.entry(path).or_insert_with(resolved).clone()
    }
}
