//! Which files are scripts.

use std::path::Path;
use std::sync::Arc;

use levity_config::Config;
use levity_config::upstream::Protocol;

use super::resources::upstream;
use super::roots::Roots;
use crate::files::scripts::Scripts;
use crate::upstream::Upstream;

/// Whether a part of `site` is handled by an application that may be PHP. Its sources may then lie in other parts of the
/// site, too.
pub fn has_php(site: &levity_config::Site, upstreams: &[Arc<Upstream>]) -> bool {
    site.locations().any(|location| {
        let name = location.proxying.proxy.as_deref();
        let protocol = name.map(|name| upstream(upstreams, name).settings.protocol);
        protocol == Some(Protocol::Fastcgi)
    })
}

/// The scripts of all locations, with their roots without links. Blocks.
pub fn all_scripts(
    config: &Config,
    upstreams: &[Arc<Upstream>],
    roots: &mut Roots,
) -> Vec<(Arc<Path>, Scripts)> {
    let mut all = Vec::new();
    for site in &config.sites {
        let has_php = has_php(site, upstreams);
        for of in site.locations() {
            let scripts = scripts(of).or_else(|| has_php.then(Scripts::guarded));
            let root = of.root.as_deref().and_then(|root| roots.resolved(root));
            all.extend(root.zip(scripts));
        }
    }
    all
}

/// The scripts of a location; `None` if it runs none.
pub fn scripts(of: &levity_config::Location) -> Option<Scripts> {
    let proxying = &of.proxying;
    Scripts::new(
        proxying.script_suffix.as_deref(),
        proxying.script_index.as_deref(),
        &of.options.index,
    )
}
