//! The server in front of an application.

use super::{Launch, Server, Tree};

/// A server whose one site has `root` and asks the backends at `to` in `protocol`; `upstream` and `site`
/// are further keys of both.
#[track_caller]
pub fn in_front_of(to: &[&str], protocol: &str, upstream: &str, root: &Tree, site: &str) -> Launch {
    let to: Vec<_> = to.iter().map(|address| format!("\"{address}\"")).collect();
    let to = to.join(", ");
    let tables = format!(
        "[[upstream]]\nname = \"app\"\nprotocol = \"{protocol}\"\nto = [{to}]\n{upstream}\n"
    );
    Launch::site(root.path(), &tables, &format!("proxy = \"app\"\n{site}\n")).workers(1)
}

/// The same, started and without further keys of the upstream.
#[track_caller]
pub fn started_in_front_of(to: &str, protocol: &str, root: &Tree, site: &str) -> Server {
    in_front_of(&[to], protocol, "", root, site).start()
}
