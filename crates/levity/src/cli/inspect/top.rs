//! `levity top`: finds the admin listener to connect to.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;
use levity_inspect::top;

use super::{EXIT_FAILURE, Environment, Step, Streams, admin_places};
use levity_config::AdminPlaces;
use levity_config::address::{Address, AddressError};

/// The default address, which is that of the examples.
const ADMIN_USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9180);

// A comment of documentation would become the text of `--help`.
#[derive(Args)]
pub struct Options {
    /// The address of its admin listener: ADDRESS:PORT or unix:PATH [default: 127.0.0.1:9180]
    #[arg(value_name = "ADDR", value_parser = admin_address)]
    address: Option<Address>,
    /// Take the address from this configuration file
    #[arg(
        short,
        long = "config",
        value_name = "FILE",
        conflicts_with = "address"
    )]
    config: Option<PathBuf>,
    #[command(flatten)]
    environment: Environment,
    /// Print one frame without colour and exit; the default if standard output is no terminal
    #[arg(long)]
    once: bool,
}

/// From the address of a server, or the file that has it. May block.
///
/// # Errors
/// The exit status when the file has none, after a message.
pub fn top(options: Options, streams: &mut Streams<'_>) -> Result<Step, u8> {
    let Options {
        address,
        config,
        environment,
        once,
    } = options;
    let address = match config {
        Some(file) => Some(admin(&file, &environment, streams)?),
        None => address,
    };
    let address = address.map_or(top::Address::Tcp(ADMIN_USUAL), target);
    Ok(Step::Top(top::Options { address, once }))
}

fn target(listen: Address) -> top::Address {
    match listen {
        Address::Tcp(address) => top::Address::Tcp(address),
        Address::Unix(path) => top::Address::Unix(path),
    }
}

/// Parses an address, or the URL that a server prints for its admin listener.
fn admin_address(text: &str) -> Result<Address, AddressError> {
    match text.strip_prefix("http://") {
        Some(rest) => rest.strip_suffix('/').unwrap_or(rest).parse(),
        None => text.parse(),
    }
}

/// The admin listener of a configuration; an exit status when there is none. May block.
fn admin(file: &Path, environment: &Environment, streams: &mut Streams<'_>) -> Result<Address, u8> {
    let is_enough = |places: &AdminPlaces| places.listen.is_some();
    let places = admin_places(file, environment, is_enough, streams)?;
    places.listen.ok_or_else(|| {
        let file = file.display();
        streams.err(&format!(
            "error: {file} has no admin listener; add `[admin]` with `listen = \"{ADMIN_USUAL}\"` and \
             reload the server\n"
        ));
        EXIT_FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{Folder, levity};
    use super::super::super::{EXIT_CONFIG, EXIT_USAGE};
    use super::*;

    fn topped(args: &[&str]) -> top::Options {
        match levity(args).step {
            Step::Top(options) => options,
            step => panic!("{step:?}"),
        }
    }

    #[test]
    fn top_asks_where_it_is_told() {
        let folder = Folder::new();
        let file = folder.write(
            "levity.toml",
            "[admin]\nlisten = \"unix:admin\"\n[[site]]\nroot = \".\"\n",
        );
        let beside = format!("unix:{}/admin", folder.path());
        for (args, address, once) in [
            (&["top"][..], "127.0.0.1:9180", false),
            (&["top", "--once"], "127.0.0.1:9180", true),
            (&["top", "[::1]:7"], "[::1]:7", false),
            (&["top", "unix:x"], "unix:x", false),
            (&["top", "http://127.0.0.1:7/"], "127.0.0.1:7", false),
            (&["top", "http://[::1]:7"], "[::1]:7", false),
            (&["top", "-c", &file], &beside, false),
        ] {
            let address = target(address.parse().unwrap());
            assert_eq!(topped(args), top::Options { address, once });
        }
    }

    #[test]
    fn errors_that_hide_no_listener_do_not_matter() {
        let folder = Folder::new();
        let text = "[admin]\nlisten = \"127.0.0.1:${ADMIN_PORT}\"\n[[site]]\nroot = \"${NONE_SUCH}\"\nnone = 1\n";
        let file = folder.write("levity.toml", text);
        let values = folder.write("values", "ADMIN_PORT=7\n");
        let address = target("127.0.0.1:7".parse().unwrap());
        let once = false;
        let asked = topped(&["top", "-c", &file, "--env-file", &values]);
        assert_eq!(asked, top::Options { address, once });
        let ran = levity(&["top", "-c", &file]);
        ran.exits(EXIT_CONFIG);
        assert!(
            ran.err.contains("`${ADMIN_PORT}` is not set"),
            "{}",
            ran.err
        );
    }

    #[test]
    fn top_says_what_it_lacks() {
        let folder = Folder::new();
        let file = folder.write("levity.toml", "[[site]]\nroot = \".\"\n");
        let ran = levity(&["top", "-c", &file]);
        ran.exits(EXIT_FAILURE);
        assert!(ran.err.contains("no admin listener"), "{}", ran.err);
        folder.write("levity.toml", "[admin]\nlisten = 1\n");
        levity(&["top", "-c", &file]).exits(EXIT_CONFIG);
        levity(&["top", "-c", &file, "unix:x"]).exits(EXIT_USAGE);
        levity(&["top", "example.org:9180"]).exits(EXIT_USAGE);
        levity(&["top", "http://127.0.0.1:7/x"]).exits(EXIT_USAGE);
    }
}
