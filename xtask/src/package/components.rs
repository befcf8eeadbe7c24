//! What the program consists of: its crates, and the two libraries that come with compilers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::build;
use super::target::Target;
use super::tool::tool;
use crate::run::{self, Result};

/// The licences of the standard library: who wrote what is in it, and the texts that this page only names.
const RUST_LICENCES: [&str; 4] = [
    "COPYRIGHT-library.html",
    "licenses/Apache-2.0.txt",
    "licenses/MIT.txt",
    "licenses/Unicode-3.0.txt",
];

/// The licences of the C library, where the Debian packages libc6-dev and base-files have them.
const GLIBC_LICENCES: [&str; 2] = [
    "/usr/share/doc/libc6-dev/copyright",
    "/usr/share/common-licenses/LGPL-2.1",
];

/// A part of the program.
pub struct Component {
    pub name: String,
    pub version: String,
    /// An expression of SPDX.
    pub licence: String,
    /// Its place among packages (<https://github.com/package-url/purl-spec>). Our own crates have none.
    pub purl: Option<String>,
    /// Files with its licences, and folders that have such files. Our own crates have none.
    pub licences: Vec<PathBuf>,
    /// The components that it uses, as name and version.
    pub uses: Vec<(String, String)>,
}

/// The components of the program for `target`, by name and version.
pub fn of(target: &Target) -> Result<Vec<Component>> {
    let linked = linked(target)?;
    let metadata = run::metadata()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let packages: Vec<_> = packages
        .filter(|package| linked.contains(&id(package)))
        .collect();
    let nodes = metadata["resolve"]["nodes"].as_array();
    let uses = |package: &Value| {
        let mut nodes = nodes.into_iter().flatten();
        let node = nodes.find(|node| node["id"] == package["id"]);
        let used = node.map(used).unwrap_or_default();
        let used = packages.iter().filter(|other| used.contains(&&other["id"]));
        used.map(|used| id(used)).collect()
    };
    let crates = packages
        .iter()
        .map(|package| component(package, uses(package)));
    let mut components: Vec<_> = crates.collect();
    components.extend([standard_library()?, c_library(target)?]);
    components.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    Ok(components)
}

/// The packages that one uses in its program, and not only in its tests or to be built.
fn used(node: &Value) -> Vec<&Value> {
    let in_program = |dependency: &&Value| {
        let mut kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
        kinds.any(|kind| kind["kind"].is_null())
    };
    let dependencies = node["deps"].as_array().into_iter().flatten();
    dependencies
        .filter(in_program)
        .map(|dependency| &dependency["pkg"])
        .collect()
}

/// The crates that are linked into the program, as name and version. `cargo metadata` would add features of the other programs of
/// the workspace.
fn linked(target: &Target) -> Result<BTreeSet<(String, String)>> {
    let tree = run::output(&mut run::cargo(&[
        "tree",
        "--locked",
        "--package=levity",
        "--edges=normal,no-proc-macro",
        "--target",
        target.triple,
        "--prefix=none",
        "--format={p}",
    ]))?;
    let tree = String::from_utf8_lossy(&tree);
    let names = tree.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        Some((name, words.next()?.trim_start_matches('v').to_owned()))
    });
    Ok(names.collect())
}

fn id(package: &Value) -> (String, String) {
    let text = |key| package[key].as_str().unwrap_or_default().to_owned();
    (text("name"), text("version"))
}

fn component(package: &Value, uses: Vec<(String, String)>) -> Component {
    let (name, version) = id(package);
    let licence = package["license"].as_str().unwrap_or("NOASSERTION");
    let manifest = package["manifest_path"].as_str().map(Path::new);
    let folder = manifest.and_then(Path::parent).map(Path::to_owned);
    let is_ours = package["source"].is_null();
    Component {
        purl: (!is_ours).then(|| format!("pkg:cargo/{name}@{version}")),
        // Old crates write `MIT/Apache-2.0`.
        licence: licence.replace('/', " OR "),
        licences: folder.filter(|_| !is_ours).into_iter().collect(),
        name,
        version,
        uses,
    }
}

fn standard_library() -> Result<Component> {
    let version = run::output(build::rustc().arg("--version"))?;
    let version = String::from_utf8_lossy(&version);
    let version = version.split_whitespace().nth(1).unwrap_or_default();
    let folder = run::output(build::rustc().args(["--print", "sysroot"]))?;
    let folder = PathBuf::from(String::from_utf8_lossy(&folder).trim());
    let licences = RUST_LICENCES.map(|file| folder.join("share/doc/rust").join(file));
    Ok(library(
        "rust-std",
        version,
        "MIT OR Apache-2.0",
        licences.into(),
    ))
}

/// The C library, whose version the headers of the compiler tell.
fn c_library(target: &Target) -> Result<Component> {
    let source = "printf '#include <features.h>\\n__GLIBC__.__GLIBC_MINOR__\\n' | \"$0\" -E -P -";
    let mut shell = tool("sh");
    let text = run::output(shell.args(["-c", source, &target.tool("gcc")]))?;
    let version: String = String::from_utf8_lossy(&text).split_whitespace().collect();
    let licences = GLIBC_LICENCES.map(PathBuf::from);
    Ok(library(
        "glibc",
        &version,
        "LGPL-2.1-or-later",
        licences.into(),
    ))
}

fn library(name: &str, version: &str, licence: &str, licences: Vec<PathBuf>) -> Component {
    Component {
        purl: Some(format!("pkg:generic/{name}@{version}")),
        name: name.to_owned(),
        version: version.to_owned(),
        licence: licence.to_owned(),
        licences,
        uses: Vec::new(),
    }
}
