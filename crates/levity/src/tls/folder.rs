//! The folder of what has to outlive a restart.

use std::env;
use std::io;
use std::path::PathBuf;

use levity_config::tls::Certificates;
use levity_config::{Config, Site};
use rustix::fs::{Access, access};

/// The folder of the state of TLS with `config`.
pub fn state_folder(config: &Config) -> PathBuf {
    config.tls.folder.clone().unwrap_or_else(usual_folder)
}

/// Why this user cannot write to the folder of the state, if the certificates of a site are there and it cannot. Makes nothing. Blocks.
pub fn unwritable(config: &Config) -> Option<String> {
    let has_state = |site: &Site| {
        let tls = site.tls.as_ref();
        tls.is_some_and(|tls| !matches!(tls.certificates, Certificates::Files(_)))
    };
    if !config.sites.iter().any(has_state) {
        return None;
    }
    let folder = state_folder(config);
    // What is missing is made.
    let there = folder.ancestors().find(|path| path.exists())?;
    let reason = match access(there, Access::WRITE_OK | Access::EXEC_OK) {
        _ if !there.is_dir() => format!("{} is not a folder", there.display()),
        Ok(()) => return None,
        Err(error) => format!("{}: {}", there.display(), io::Error::from(error)),
    };
    Some(format!(
        "this user cannot write to {}, which is for certificates and their keys: {reason}; a server of another user may",
        folder.display()
    ))
}

fn usual_folder() -> PathBuf {
    let of_user = || {
        let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let home = || env::home_dir().map(|home| home.join(".local/state"));
        state.filter(|path| path.is_absolute()).or_else(home)
    };
    let given = env::var_os("STATE_DIRECTORY").filter(|given| !given.is_empty());
    let is_root = rustix::process::geteuid().is_root();
    match (given, is_root) {
        // Of several, separated by colons, the first one (systemd.exec(5)).
        (Some(given), _) => {
            let given = given.to_string_lossy().into_owned();
            PathBuf::from(given.split(':').next().unwrap_or_default()).join("tls")
        }
        (None, false) => of_user().unwrap_or_default().join("levity/tls"),
        (None, true) => PathBuf::from("/var/lib/levity/tls"),
    }
}
