//! What answers in place of files.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::folders::Folders;
use crate::model::Location;
use crate::upstream::Upstream;
use crate::upstream::read::Upstreams;

/// What answers to paths.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Application {
    /// The same for upstreams that have a backend in common.
    number: usize,
    /// Whether the folder says which scripts it runs.
    is_cgi: bool,
    /// That folder.
    scripts: Option<Arc<Path>>,
}

impl Application {
    /// As `location` asks it.
    pub(super) fn with_scripts<'a>(
        &self,
        location: &'a Location,
        folders: &mut Folders<'a>,
    ) -> Self {
        let root = location.root.as_deref().filter(|_| self.is_cgi);
        Self {
            scripts: root.map(|root| folders.get(root)),
            ..self.clone()
        }
    }
}

/// The applications behind upstreams, by the names of these.
pub(super) fn applications(upstreams: &Upstreams) -> HashMap<&str, Application> {
    // For each upstream an earlier one with a backend in common, or itself.
    let mut earlier: Vec<usize> = Vec::new();
    let first = |earlier: &[usize], mut number: usize| {
        while earlier[number] != number {
            number = earlier[number];
        }
        number
    };
    let mut of_backends = HashMap::new();
    for (number, upstream) in upstreams.iter().enumerate() {
        earlier.push(number);
        for backend in &upstream.to {
            let other = *of_backends.entry(&backend.at).or_insert(number);
            let (one, other) = (first(&earlier, number), first(&earlier, other));
            earlier[one.max(other)] = one.min(other);
            // Keeps the way to the first short.
            earlier[number] = one.min(other);
        }
    }
    let application = |(number, upstream): (usize, &'_ Upstream)| Application {
        number: first(&earlier, number),
        is_cgi: upstream.protocol.is_cgi(),
        scripts: None,
    };
    let names = upstreams.iter().map(|upstream| upstream.name.as_str());
    names
        .zip(upstreams.iter().enumerate().map(application))
        .collect()
}
