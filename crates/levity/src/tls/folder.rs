//! The folder of what has to outlive a restart.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::iter;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use levity_config::tls::Certificates;
use levity_config::{Config, Site};
use levity_disk::{Secrets, patiently};
use levity_telemetry::diagnostics;
use levity_wire::encoding::Coding;
use rustix::fs::{Access, access};

use crate::files::codings::suffix;

/// Why a folder has to be named.
const NO_FOLDER: &str = "there is no folder for certificates and their keys: this user has no home; set `STATE_DIRECTORY` or `HOME` to an \
                         absolute path, or `folder` of `[tls]`";

/// What to do about a folder to which this user may not write.
pub const OTHER_FOLDER: &str = "set `STATE_DIRECTORY` or `HOME` to a folder to which this user may write, or `folder` of `[tls]`";

/// The folder of the state of TLS with `config`.
///
/// # Errors
/// What to set where there is none. A folder of the place where the server is started could be one that it serves.
pub fn state_folder(config: &Config) -> Result<PathBuf, &'static str> {
    let is_root = rustix::process::geteuid().is_root();
    let variable = |name: &str| env::var_os(name).map(PathBuf::from);
    let folder = config.tls.folder.clone();
    folder
        .or_else(|| usual_folder(is_root, variable, env::home_dir()))
        .ok_or(NO_FOLDER)
}

/// What is sent to nobody: what the file names as secret, the file itself, both also as tools compress them, and the folder of the
/// state, whether or not this configuration uses it.
///
/// Starts a thread that looks at them.
pub fn secrets(config: &Config) -> Arc<Secrets> {
    let report = |line: &str| diagnostics::log(format_args!("{line}"));
    Secrets::new(secret_paths(config), report)
}

fn secret_paths(config: &Config) -> impl Iterator<Item = PathBuf> {
    let compressed = |secret: &PathBuf, coding: Coding| {
        let mut name = secret.clone().into_os_string();
        name.push(OsStr::from_bytes(suffix(coding)));
        PathBuf::from(name)
    };
    let named = config.secrets.iter().flat_map(move |secret| {
        let compressed = Coding::ALL.map(|coding| compressed(secret, coding));
        iter::once(secret.clone()).chain(compressed)
    });
    named.chain(state_folder(config).ok())
}

/// Remarks about the folder of the state on this machine. Makes nothing. Blocks.
pub fn notes(config: &Config) -> impl Iterator<Item = String> {
    let unwritable = unwritable(config).map(|text| config.hidden.hide(&text).into_owned());
    unwritable.into_iter().chain(served(config))
}

/// That clients could get the folder of the state by its name, if it is the usual one and keys are to be there. Blocks.
pub fn served(config: &Config) -> Option<String> {
    // The reader of the file has compared one that is named there.
    if config.tls.folder.is_some() || !has_state(config) {
        return None;
    }
    let folder = state_folder(config).ok()?;
    let resolved = patiently(&folder, resolved).ok()??;
    let locations = config.sites.iter().flat_map(Site::locations);
    let mut roots = locations.filter_map(|location| location.root.as_deref());
    let shows = |root: &Path| {
        let root = patiently(root, |root| fs::canonicalize(root));
        let root = root.and_then(|root| root).ok()?;
        let beneath = resolved.strip_prefix(root).ok()?;
        // Such names are not served anyway.
        let is_hidden = beneath
            .iter()
            .any(|name| name.as_encoded_bytes().starts_with(b"."));
        (!is_hidden).then_some(())
    };
    let root = roots.find(|root| shows(root).is_some())?;
    let text = format!(
        "{}, which is for certificates and their keys, lies beneath {}, which is served: nobody gets it, but use another folder",
        folder.display(),
        root.display()
    );
    Some(config.hidden.hide(&text).into_owned())
}

/// A path without links, of which the last parts may be missing. Blocks.
fn resolved(path: &Path) -> Option<PathBuf> {
    let mut above = path.ancestors();
    let there = above.find_map(|path| Some((path, fs::canonicalize(path).ok()?)));
    let (there, resolved) = there?;
    Some(resolved.join(path.strip_prefix(there).ok()?))
}

/// Whether certificates of a site are kept in the folder of the state.
pub fn has_state(config: &Config) -> bool {
    let has_state = |site: &Site| {
        let tls = site.tls.as_ref();
        tls.is_some_and(|tls| !matches!(tls.certificates, Certificates::Files(_)))
    };
    config.sites.iter().any(has_state)
}

/// Why this user cannot write to the folder of the state, if the certificates of a site are there and it cannot. Makes nothing. Blocks.
fn unwritable(config: &Config) -> Option<String> {
    if !has_state(config) {
        return None;
    }
    let folder = match state_folder(config) {
        Ok(folder) => folder,
        Err(reason) => return Some(reason.to_owned()),
    };
    // What is missing is made.
    let reason = patiently(&folder, why_unwritable);
    let reason = reason.unwrap_or_else(|error| Some(format!("it {error}")))?;
    Some(format!(
        "this user cannot write to {}, which is for certificates and their keys: {reason}; {OTHER_FOLDER}, unless the server runs as \
         another user",
        folder.display()
    ))
}

/// Whether this user may write to the folder, or make it. Makes nothing. Blocks.
pub fn is_writable(folder: &Path) -> bool {
    matches!(patiently(folder, why_unwritable), Ok(None))
}

fn why_unwritable(folder: &Path) -> Option<String> {
    // What is missing is made.
    let there = folder.ancestors().find(|path| path.exists())?;
    match access(there, Access::WRITE_OK | Access::EXEC_OK) {
        _ if !there.is_dir() => Some(format!("{} is not a folder", there.display())),
        Ok(()) => None,
        Err(error) => Some(format!("{}: {}", there.display(), io::Error::from(error))),
    }
}

/// The folder of the state of a user; `None` without any place for it. `variable` is the environment.
fn usual_folder(
    is_root: bool,
    variable: impl Fn(&str) -> Option<PathBuf>,
    home: Option<PathBuf>,
) -> Option<PathBuf> {
    let is_absolute = |path: &PathBuf| path.is_absolute();
    // Of several, separated by colons, the first one (systemd.exec(5)).
    let first = |given: PathBuf| {
        let given = given.to_string_lossy();
        given.split(':').next().map(PathBuf::from)
    };
    let of_service = variable("STATE_DIRECTORY").and_then(first);
    if let Some(given) = of_service.filter(is_absolute) {
        return Some(given.join("tls"));
    }
    if is_root {
        return Some(PathBuf::from("/var/lib/levity/tls"));
    }
    let of_home = || Some(home.filter(is_absolute)?.join(".local/state"));
    let state = variable("XDG_STATE_HOME").filter(is_absolute);
    Some(state.or_else(of_home)?.join("levity/tls"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_folder_is_never_that_of_the_start() {
        let folder = |is_root, service: &str, state: &str, home: &str| {
            let given = |text: &str| Some(PathBuf::from(text)).filter(|_| !text.is_empty());
            let variable = |name: &str| match name {
                "STATE_DIRECTORY" => given(service),
                _ => given(state),
            };
            let folder = usual_folder(is_root, variable, given(home));
            folder.map(|folder| folder.display().to_string())
        };
        for (is_root, service, state, home, expected) in [
            (false, "/s:/t", "/x", "/h", "/s/tls"),
            (true, "/s", "", "", "/s/tls"),
            (true, "s", "/x", "/h", "/var/lib/levity/tls"),
            (false, "s", "/x", "/h", "/x/levity/tls"),
            (false, "", "x", "/h", "/h/.local/state/levity/tls"),
            (false, "", "", "/", "/.local/state/levity/tls"),
        ] {
            let found = folder(is_root, service, state, home);
            assert_eq!(found.as_deref(), Some(expected));
        }
        assert_eq!(folder(false, "s", "x", "h"), None);
        assert_eq!(folder(false, "", "", ""), None);
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_folder_beneath_a_root_is_noted_unless_its_name_hides_it() {
        let home = tempfile::tempdir().expect("a folder");
        let config = |root: &Path| {
            let root = root.display();
            let site = format!("[[site]]\nroot = \"{root}\"\ntls = \"internal\"\n");
            let listen = "[[listen]]\naddress = \"127.0.0.1:443\"\n";
            levity_config::parse(&format!("{listen}{site}")).expect("a configuration")
        };
        let Ok(usual) = state_folder(&config(home.path())) else {
            return;
        };
        let there = usual.ancestors().find(|path| path.exists());
        let there = there.expect("/");
        let mut beneath = usual.strip_prefix(there).expect("a path").iter();
        let is_hidden = beneath.any(|name| name.as_encoded_bytes().starts_with(b"."));
        let noted = served(&config(there));
        assert_eq!(noted.is_some(), !is_hidden, "{noted:?}");
        assert_eq!(served(&config(home.path())), None);
    }
}
